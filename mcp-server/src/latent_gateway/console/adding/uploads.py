"""Files from a browser's form, with or without a progress script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, Final, cast
from urllib.parse import quote, urlencode

from fastapi import Request, Response
from fastapi.responses import RedirectResponse
from starlette.datastructures import FormData, Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive
from typing_extensions import override

from latent_core.domain.errors import Invalid, LatentError, OutOfSpace, TimedOut, TooLarge
from latent_core.wire.documents import AddBody, UploadAnswer
from latent_gateway.api import uploads
from latent_gateway.api.ingest import accept_source
from latent_gateway.auth import access
from latent_gateway.auth.quotas import check_capacity
from latent_gateway.console.frame.console_session import ConsoleSession, SignedIn
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.frame.view import HEADERS
from latent_gateway.context import Gateway, Shared
from latent_gateway.middleware.auth import SECONDS_BETWEEN_PIECES

router = pages()

MAX_FILES: Final = 20
FIELD: Final = "files"
FORM_BYTES: Final = 64 * 1024
"""Extra bytes of the form: boundaries and names."""
BLOCK: Final = 256 * 1024
REMARKS: Final = frozenset({"content-length", "content-type", "transfer-encoding"})
"""Headers of the form's body, not of one file."""


@router.post("/console/containers/{container_id}/uploads")
async def send(container_id: str, request: Request, shared: Shared, session: SignedIn) -> Response:
    """Accept the files of a form as the API does, then show the container's jobs."""
    declared = max(0, uploads.declared_bytes(request) - FORM_BYTES)
    async with shared.stack.db.reading() as conn:
        await access.writable(conn, session.principal, container_id)
        left = await shared.quotas.bytes_left(conn, session.principal, declared)
        await shared.stack.capacity.check(conn)
    await check_capacity(shared.stack.tmp, shared.settings.min_free_bytes, declared)
    form = await _form(request, shared, left)
    try:
        chosen = [f for f in form.getlist(FIELD) if isinstance(f, UploadFile) and f.filename]
        if not chosen:
            raise Invalid("no file was chosen: choose one or several, then send them")
        for file in chosen:
            await _take(container_id, file, request, shared, session)
    finally:
        await form.close()
    query = urlencode({"container": container_id})
    return RedirectResponse(f"/console/jobs?{query}", 303, HEADERS)


async def _form(request: Request, shared: Gateway, left: int | None) -> FormData:
    """The form's parts, in temporary files; ``TooLarge`` above the upload limit in total, ``RateLimited`` above the
    bytes ``left`` for this sender."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise Invalid("files are sent as a form (multipart/form-data)")
    limit = shared.settings.max_upload_bytes + FORM_BYTES
    refusal: LatentError = TooLarge(
        f"files sent together may have at most {limit} bytes: send fewer at once"
    )
    if left is not None and left + FORM_BYTES < limit:
        limit, refusal = left + FORM_BYTES, shared.quotas.out_of_bytes()
    counted = Request(request.scope, _counted(request.receive, limit, refusal))
    stream = counted.stream()
    try:
        async with aclosing(stream):
            return await _Parser(request.headers, stream, shared.stack.tmp).parse()
    except MultiPartException as exc:
        raise Invalid(f"the form is not valid: {exc.message}") from exc
    except ClientDisconnect as exc:
        raise Invalid("the upload was interrupted") from exc
    except OSError as exc:
        raise OutOfSpace(
            f"the files could not be kept ({exc.strerror}): free space, then send them again"
        ) from exc


class _Parser(MultiPartParser):
    """Stores files in our own folder, whose free space was checked."""

    def __init__(self, headers: Headers, stream: AsyncGenerator[bytes, None], folder: Path) -> None:
        super().__init__(headers, stream, max_files=MAX_FILES, max_fields=0)
        self._folder = folder

    @override
    def on_headers_finished(self) -> None:
        super().on_headers_finished()
        made = self._current_part.file
        if made is not None:
            made.file.close()
            kept = SpooledTemporaryFile(max_size=self.spool_max_size, dir=str(self._folder))  # noqa: SIM115
            self._files_to_close_on_error.append(kept)
            made.file = cast(BinaryIO, kept)


def _counted(receive: Receive, limit: int, refusal: LatentError) -> Receive:
    size = 0

    async def counting() -> Message:
        nonlocal size
        try:
            async with asyncio.timeout(SECONDS_BETWEEN_PIECES):
                message = await receive()
        except TimeoutError as exc:
            raise TimedOut("no data arrived for a minute: send the upload again") from exc
        size += len(message.get("body", b""))
        if size > limit:
            raise refusal
        return message

    return counting


async def _take(
    container_id: str, file: UploadFile, request: Request, shared: Gateway, session: ConsoleSession
) -> None:
    """One file, through the API's own functions, so that their limits and audit apply."""
    name = file.filename or ""
    answer = await uploads.upload(
        container_id,
        _file_request(request, file),
        name,
        shared,
        session.principal,
        session.request_id,
    )
    stored = UploadAnswer.model_validate_json(bytes(answer.body)).upload
    body = AddBody(container_id=container_id, file_ref=stored.file_ref)
    await accept_source(body, shared, session.principal, session.request_id)


def _file_request(request: Request, file: UploadFile) -> Request:
    return as_upload(request, file.content_type or "", file.size or 0, _replayed(file))


def as_upload(request: Request, mime: str, size: int, receive: Receive) -> Request:
    """The request that the API would have received for one file alone."""
    kept = [(k, v) for k, v in request.scope["headers"] if k.decode("latin-1") not in REMARKS]
    given = {"content-type": mime, "content-length": str(size)}
    headers = [*kept, *((k.encode(), quote(v, safe="/;=+. -").encode()) for k, v in given.items())]
    return Request({**request.scope, "headers": headers}, receive)


def _replayed(file: UploadFile) -> Receive:
    async def receive() -> Message:
        block = await file.read(BLOCK)
        return {"type": "http.request", "body": block, "more_body": bool(block)}

    return receive
