"""The pages of operations: each only for those whom the API lets in, too."""

from __future__ import annotations

from typing import Any

from fastapi import Response

from latent_core.domain.token import Scope
from latent_gateway.auth.principal import Principal
from latent_gateway.console.frame.console_session import ConsoleSession
from latent_gateway.console.frame.navigation import Section
from latent_gateway.console.frame.view import page

BASE = "/console/operations"


def operation_sections(principal: Principal) -> tuple[Section, ...]:
    """The second row of the navigation."""
    found: list[Section] = []
    if principal.is_operator:
        found.append(Section("overview", "Overview", BASE))
    if Scope.ADMIN in principal.scopes:
        found.append(Section("backups", "Backups", f"{BASE}/backups"))
        found.append(Section("transfers", "Export and import", f"{BASE}/transfers"))
        found.append(Section("doctor", "Doctor", f"{BASE}/doctor"))
    if principal.is_operator:
        found.append(Section("models", "Models", f"{BASE}/models"))
    if Scope.ADMIN in principal.scopes:
        found.append(Section("audit", "Audit trail", f"{BASE}/audit"))
    if principal.is_operator:
        found.append(Section("settings", "Settings", f"{BASE}/settings"))
    return tuple(found)


def operations_page(
    template: str, session: ConsoleSession, tab: str, *, status: int = 200, **shown: Any
) -> Response:
    """A page below the second row."""
    return page(
        f"operations/{template}",
        session,
        status=status,
        sections=operation_sections(session.principal),
        tab=tab,
        **shown,
    )
