"""Changes of a container as a whole: its state, and its end."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Form, Response

from latent_core.domain.errors import Invalid
from latent_core.wire.containers import ContainerState
from latent_gateway.api.containers import deleted, state_set
from latent_gateway.auth import access
from latent_gateway.console.frame.console_session import SignedIn
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.frame.view import done
from latent_gateway.context import RequestId, Shared

router = pages()

STATES: Final = {
    ContainerState.ACTIVE: "active: it can be searched and changed",
    ContainerState.READONLY: "read-only: it can be searched, but not changed",
    ContainerState.ARCHIVED: "archived: only its owners see it, and nothing is searched or changed",
}


@router.post("/console/containers/{container_id}/state")
async def set_state(
    container_id: str,
    shared: Shared,
    session: SignedIn,
    request_id: RequestId,
    state: Annotated[ContainerState, Form()],
) -> Response:
    await state_set(shared, session.principal, container_id, state, request_id)
    path = f"/console/containers/{container_id}/settings"
    return done(path, f"The container is now {STATES[state]}.")


@router.post("/console/containers/{container_id}/delete")
async def delete(
    container_id: str,
    shared: Shared,
    session: SignedIn,
    request_id: RequestId,
    typed: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Only with the container's id typed."""
    async with shared.stack.db.reading() as conn:
        container = await access.owned(conn, session.principal, container_id)
    if typed.strip() != container.id:
        raise Invalid(
            f"'{container.id}' was not deleted: '{typed.strip()[:80]}' was typed. Go back and type the id of the container"
        )
    answer = await deleted(shared, session.principal, container.id, request_id)
    stays = " ".join(issue.message for issue in answer.issues)
    return done("/", f"'{container.id}' is deleted. Job {answer.job_id} removes its data. {stays}")
