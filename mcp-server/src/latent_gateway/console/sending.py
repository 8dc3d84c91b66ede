"""Files from a browser's form: with a script that shows how far it is, and without one."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, urlencode

from fastapi import Request, Response
from fastapi.responses import RedirectResponse
from starlette.datastructures import FormData, UploadFile
from starlette.types import Message, Receive

from latent_core.domain.errors import Invalid, OutOfSpace, TooLarge
from latent_gateway.api import uploads
from latent_gateway.api.bodies import AddBody, Uploaded
from latent_gateway.api.ingest import accept_source
from latent_gateway.auth import access
from latent_gateway.console.routing import pages
from latent_gateway.console.view import HEADERS
from latent_gateway.console.visitor import Visiting, Visitor
from latent_gateway.context import Gateway, Shared

router = pages()

MOST_FILES: Final = 20
FIELD: Final = "files"
FORM_BYTES: Final = 64 * 1024
"""What the form may add to its files: boundaries and names."""
BLOCK: Final = 256 * 1024
REMARKS: Final = frozenset({"content-length", "content-type", "transfer-encoding"})
"""Headers that speak of the form's body, not of a file's."""


@router.post("/console/containers/{container_id}/uploads")
async def send(container_id: str, request: Request, shared: Shared, visitor: Visiting) -> Response:
    """Take the files of a form, each as the API takes one; then show the container's jobs."""
    async with shared.stack.db.reading() as conn:
        await access.writable(conn, visitor.principal, container_id)
    form = await _form(request, shared.settings.max_upload_bytes + FORM_BYTES)
    try:
        chosen = [f for f in form.getlist(FIELD) if isinstance(f, UploadFile) and f.filename]
        if not chosen:
            raise Invalid("no file was chosen: choose one or several, then send them")
        for file in chosen:
            await _take(container_id, file, request, shared, visitor)
    finally:
        await form.close()
    query = urlencode({"container": container_id})
    return RedirectResponse(f"/console/jobs?{query}", 303, HEADERS)


async def _form(request: Request, limit: int) -> FormData:
    """The form's parts, in temporary files; ``TooLarge`` once it has more than ``limit`` bytes in all."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise Invalid("files are sent as a form (multipart/form-data)")
    counted = Request(request.scope, _counted(request.receive, limit))
    try:
        return await counted.form(max_files=MOST_FILES, max_fields=0)
    except OSError as exc:
        raise OutOfSpace(
            f"the files could not be kept ({exc.strerror}): make room, then send them again"
        ) from exc


def _counted(receive: Receive, limit: int) -> Receive:
    size = 0

    async def counting() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > limit:
            raise TooLarge(f"files sent together may have {limit} bytes; send fewer at a time")
        return message

    return counting


async def _take(
    container_id: str, file: UploadFile, request: Request, shared: Gateway, visitor: Visitor
) -> None:
    """One file, by way of the API's own functions: their limits and their audit are the console's."""
    name = file.filename or ""
    answer = await uploads.upload(
        container_id, _as_upload(request, file), name, shared, visitor.principal, visitor.request_id
    )
    stored = Uploaded.model_validate_json(bytes(answer.body)).upload
    body = AddBody(container_id=container_id, file_ref=stored.file_ref)
    await accept_source(body, shared, visitor.principal, visitor.request_id)


def _as_upload(request: Request, file: UploadFile) -> Request:
    """The request the API would have had for this file alone."""
    kept = [(k, v) for k, v in request.scope["headers"] if k.decode("latin-1") not in REMARKS]
    given = {"content-type": file.content_type or "", "content-length": str(file.size or 0)}
    headers = [*kept, *((k.encode(), quote(v, safe="/;=+. -").encode()) for k, v in given.items())]
    return Request({**request.scope, "headers": headers}, _replayed(file))


def _replayed(file: UploadFile) -> Receive:
    async def receive() -> Message:
        block = await file.read(BLOCK)
        return {"type": "http.request", "body": block, "more_body": bool(block)}

    return receive
