"""Files that the script sends: parts of a resumable upload, and the document that the complete file becomes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final
from uuid import UUID

from fastapi import Query, Request, Response
from pydantic import BaseModel

from latent_core.domain.ids import WireJobId
from latent_core.domain.text import Text
from latent_core.wire.documents import AddBody, ResumableUploadView
from latent_gateway.api import resumable_uploads as api
from latent_gateway.api.ingest import accept_source
from latent_gateway.console.adding.script_route import script_routes
from latent_gateway.console.frame.console_session import ConsoleSession, SignedIn
from latent_gateway.context import Gateway, Shared

router = script_routes()

UPLOADS: Final = "/console/containers/{container_id}/resumable-uploads"
ONE: Final = f"{UPLOADS}/{{upload_id}}"
Path = Annotated[Text, Query(min_length=1, max_length=1500)]
"""Of the file in its folder: the document's path."""
Modified = Annotated[int | None, Query(ge=0, lt=4_102_444_800_000)]
"""When the file was changed, in milliseconds since 1970."""


class TransferState(BaseModel):
    """How far a file is; with the job of its document once it is complete."""

    file_ref: str
    received: int
    doc_id: UUID | None = None
    job_id: WireJobId | None = None


@router.post(UPLOADS)
async def begin(
    container_id: str,
    request: Request,
    shared: Shared,
    session: SignedIn,
    path: Path,
    modified: Modified = None,
) -> Response:
    """Begin a file with its first bytes; a small one is complete with them."""
    view = await api.created(container_id, request, shared, session.principal, session.request_id)
    return await _state(container_id, view, path, modified, shared, session)


@router.patch(ONE)
async def append(
    container_id: str,
    upload_id: UUID,
    request: Request,
    shared: Shared,
    session: SignedIn,
    path: Path,
    modified: Modified = None,
) -> Response:
    """Append bytes. Of a file that is complete already, whose answer was lost, it adds the document again: the same."""
    view = await api.appended(
        container_id, upload_id, request, shared, session.principal, session.request_id
    )
    return await _state(container_id, view, path, modified, shared, session)


@router.get(ONE)
async def show(container_id: str, upload_id: UUID, shared: Shared, session: SignedIn) -> Response:
    """Where to continue."""
    view = await api.shown(container_id, upload_id, shared, session.principal)
    return _answer(TransferState(file_ref=view.file_ref, received=view.received))


async def _state(
    container_id: str,
    view: ResumableUploadView,
    path: str,
    modified: int | None,
    shared: Gateway,
    session: ConsoleSession,
) -> Response:
    state = TransferState(file_ref=view.file_ref, received=view.received)
    if view.upload is not None:
        body = AddBody(
            container_id=container_id,
            file_ref=view.file_ref,
            source_uri=f"file:///{path.lstrip('/')}",
            filename=view.filename,
            modified_at=None if modified is None else datetime.fromtimestamp(modified / 1000, UTC),
        )
        added = await accept_source(body, shared, session.principal, session.request_id)
        state = state.model_copy(update={"doc_id": added.doc_id, "job_id": added.job_id})
    return _answer(state)


def _answer(state: TransferState) -> Response:
    return Response(state.model_dump_json(), media_type="application/json")
