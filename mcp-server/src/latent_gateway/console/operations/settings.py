"""Settings as they are in force, each with the place that it comes from."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from latent_core.domain.text import Text
from latent_gateway.api.operations import setting_list
from latent_gateway.auth import access
from latent_gateway.console.frame.console_session import SignedIn
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.operations.sections import operations_page
from latent_gateway.context import Shared

router = pages()


@router.get("/console/operations/settings")
async def settings_page(
    shared: Shared,
    session: SignedIn,
    name: Annotated[Text, Query(max_length=64)] = "",
    changed: bool = False,
) -> Response:
    """Filtered by a part of the name; with ``changed`` without defaults."""
    access.require_operator(session.principal)
    found = setting_list(shared.settings)
    shown = [
        one
        for one in found.settings
        if name.lower() in one.name.lower() and not (changed and one.source == "default")
    ]
    return operations_page(
        "settings.html",
        session,
        "settings",
        settings=shown,
        total=len(found.settings),
        unknown=found.unknown,
        name=name,
        changed=changed,
    )
