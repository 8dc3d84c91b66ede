"""The console: pages at ``/`` that use the same functions as the API (docs/console.md)."""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI

from latent_core.domain.errors import NotFound
from latent_gateway.console.adding import add_page, progress, selection, transfer, uploads
from latent_gateway.console.agents import agents, token
from latent_gateway.console.containers import (
    container_settings,
    new_container,
    overview,
    settings_actions,
)
from latent_gateway.console.documents import document, document_list
from latent_gateway.console.entry import sign_in, sign_in_link, start
from latent_gateway.console.frame import view
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.operations import (
    audit as audit_trail,
    backups,
    doctor,
    jobs,
    models,
    overview as operations,
    processing,
    refresh,
    settings,
    transfers,
)
from latent_gateway.console.quality import golden, queries, runs
from latent_gateway.console.reference import api_reference
from latent_gateway.console.searching import ask, passage, saved, search

ROUTERS: Final = (
    view.router,
    sign_in.router,
    sign_in.leaving,
    sign_in_link.router,
    start.router,
    overview.router,
    search.router,
    passage.router,
    saved.router,
    ask.router,
    document_list.router,
    container_settings.router,
    settings_actions.router,
    new_container.router,
    document.router,
    jobs.router,
    operations.router,
    settings.router,
    audit_trail.router,
    backups.router,
    transfers.router,
    doctor.router,
    models.router,
    refresh.router,
    processing.router,
    uploads.router,
    api_reference.router,
    add_page.router,
    transfer.router,
    selection.router,
    progress.router,
    agents.router,
    token.router,
    golden.router,
    runs.router,
    queries.router,
)
rest = pages()


@rest.get("/console/{path:path}")
async def nowhere(path: str) -> None:
    """An unknown address below the console shows an error page."""
    raise NotFound(f"the console has no page '{path[:120]}'")


def install(app: FastAPI) -> None:
    """Add the console's routes. The last one catches unknown addresses."""
    for router in ROUTERS:
        app.include_router(router)
    app.include_router(rest)
