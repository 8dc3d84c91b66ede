"""The state of the installation, live: services, queue with the causes of waiting jobs, workers, disk, backups."""

from __future__ import annotations

from typing import Any

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from latent_core.domain.token import Scope
from latent_gateway.api.operations import status_of
from latent_gateway.auth import access
from latent_gateway.console.frame.console_session import ConsoleSession, SignedIn, session_of
from latent_gateway.console.frame.live import LiveFragment, live
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.frame.view import HEADERS, draw
from latent_gateway.console.operations.sections import operation_sections, operations_page
from latent_gateway.context import Gateway, Shared

router = pages()


@router.get("/console/operations")
async def overview(shared: Shared, session: SignedIn) -> Response:
    """For operators; owners of containers see the first page that is theirs."""
    if not session.principal.is_operator:
        access.require(session.principal, Scope.ADMIN)
        return RedirectResponse(operation_sections(session.principal)[0].path, 303, HEADERS)
    shown = await _state(shared, session)
    return operations_page("overview.html", session, "overview", **shown)


@router.get("/console/operations/live")
async def overview_live(request: Request, shared: Shared, session: SignedIn) -> Response:
    """The state after each change."""
    access.require_operator(session.principal)

    async def look() -> LiveFragment:
        again = await session_of(request, shared)
        shown = await _state(shared, again)
        return LiveFragment(draw("operations/status.html", session=again, **shown), ended=False)

    return live(shared, session, look)


async def _state(shared: Gateway, session: ConsoleSession) -> dict[str, Any]:
    access.require_operator(session.principal)
    found = await status_of(shared)
    disk = found.disk
    used = 1 - disk.free_bytes / disk.total_bytes if disk.total_bytes else 0.0
    return {"found": found, "used_percent": round(100 * used)}
