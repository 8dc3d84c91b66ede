"""Files of a browser's form (multipart/form-data), in temporary files of a folder whose free space was checked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, Final, cast
from urllib.parse import quote

from fastapi import Request
from starlette.datastructures import FormData, Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive
from typing_extensions import override

from latent_core.domain.errors import Invalid, LatentError, OutOfSpace, TimedOut
from latent_gateway.middleware.auth import SECONDS_BETWEEN_PIECES

FORM_BYTES: Final = 64 * 1024
"""Extra bytes of the form: boundaries and names."""
BLOCK: Final = 256 * 1024
OF_THE_FORM: Final = frozenset({"content-length", "content-type", "transfer-encoding"})
"""Headers of the form's body, not of one file."""


@asynccontextmanager
async def received_form(
    request: Request, folder: Path, max_bytes: int, refusal: LatentError, *, max_files: int
) -> AsyncIterator[FormData]:
    """The form, whose files are deleted at the end; ``refusal`` above ``max_bytes`` of files in total."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise Invalid("files are sent as a form (multipart/form-data)")
    counted = Request(request.scope, _counted(request.receive, max_bytes + FORM_BYTES, refusal))
    stream = counted.stream()
    try:
        async with aclosing(stream):
            form = await _Parser(request.headers, stream, folder, max_files).parse()
    except MultiPartException as exc:
        raise Invalid(f"the form is not valid: {exc.message}") from exc
    except ClientDisconnect as exc:
        raise Invalid("the upload was interrupted") from exc
    except OSError as exc:
        raise OutOfSpace(
            f"the upload could not be kept ({exc.strerror}): free space, then send it again"
        ) from exc
    try:
        yield form
    finally:
        await form.close()


def chosen_files(form: FormData, field: str) -> list[UploadFile]:
    """The files of a field; ``Invalid`` without any."""
    found = [one for one in form.getlist(field) if isinstance(one, UploadFile) and one.filename]
    if not found:
        raise Invalid("no file was chosen: choose one or several, then send them")
    return found


def file_request(request: Request, mime: str, size: int, receive: Receive) -> Request:
    """The request that the API would have received for one file alone, of ``size`` bytes."""
    kept = [(k, v) for k, v in request.scope["headers"] if k.decode("latin-1") not in OF_THE_FORM]
    given = {"content-type": mime, "content-length": str(size)}
    headers = [*kept, *((k.encode(), quote(v, safe="/;=+. -").encode()) for k, v in given.items())]
    return Request({**request.scope, "headers": headers}, receive)


def request_of(request: Request, file: UploadFile) -> Request:
    """As ``file_request``, for a file of the form."""

    async def receive() -> Message:
        block = await file.read(BLOCK)
        return {"type": "http.request", "body": block, "more_body": bool(block)}

    return file_request(request, file.content_type or "", file.size or 0, receive)


class _Parser(MultiPartParser):
    """Stores files in our own folder."""

    def __init__(
        self,
        headers: Headers,
        stream: AsyncGenerator[bytes, None],
        folder: Path,
        max_files: int,
    ) -> None:
        super().__init__(headers, stream, max_files=max_files, max_fields=0)
        self._folder = folder

    @override
    def on_headers_finished(self) -> None:
        super().on_headers_finished()
        made = self._current_part.file
        if made is not None:
            made.file.close()
            kept = SpooledTemporaryFile(max_size=self.spool_max_size, dir=str(self._folder))  # noqa: SIM115 - closed by the form
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
