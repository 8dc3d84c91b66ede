"""The file of a form, streamed into our own folder, whose free space was checked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, Final, cast

from fastapi import Request
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive
from typing_extensions import override

from latent_core.domain.errors import Invalid, OutOfSpace, TimedOut, TooLarge

BLOCK: Final = 1024 * 1024
FORM_BYTES: Final = 64 * 1024
"""Around the file: boundaries, headers, other fields."""
SECONDS_BETWEEN_PIECES: Final = 60.0
OF_THE_FORM: Final = frozenset({"content-length", "content-type", "transfer-encoding"})


@asynccontextmanager
async def form_file(
    request: Request, field: str, folder: Path, max_bytes: int
) -> AsyncIterator[UploadFile]:
    """The file of ``field``; ``Invalid`` without one, ``TooLarge`` over ``max_bytes``."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise Invalid("files are sent as a form (multipart/form-data)")
    counted = Request(request.scope, _counted(request.receive, max_bytes + FORM_BYTES))
    stream = counted.stream()
    try:
        async with aclosing(stream):
            form = await _Parser(request.headers, stream, folder).parse()
    except MultiPartException as exc:
        raise Invalid(f"the form is not valid: {exc.message}") from exc
    except ClientDisconnect as exc:
        raise Invalid("the upload was interrupted") from exc
    except OSError as exc:
        raise OutOfSpace(
            f"the file could not be kept ({exc.strerror}): free space, then send it again"
        ) from exc
    try:
        chosen = form.get(field)
        if not isinstance(chosen, UploadFile) or not chosen.filename:
            raise Invalid("no file was chosen: choose one, then send it")
        yield chosen
    finally:
        await form.close()


def as_body(request: Request, file: UploadFile) -> Request:
    """The request that the API would have received for this file alone."""
    kept = [
        (name, value)
        for name, value in request.scope["headers"]
        if name.decode("latin-1") not in OF_THE_FORM
    ]
    headers = [*kept, (b"content-length", str(file.size or 0).encode())]

    async def receive() -> Message:
        block = await file.read(BLOCK)
        return {"type": "http.request", "body": block, "more_body": bool(block)}

    return Request({**request.scope, "headers": headers}, receive)


class _Parser(MultiPartParser):
    """One file, in a folder of ours."""

    def __init__(self, headers: Headers, stream: AsyncGenerator[bytes, None], folder: Path) -> None:
        super().__init__(headers, stream, max_files=1, max_fields=0)
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


def _counted(receive: Receive, limit: int) -> Receive:
    size = 0

    async def counting() -> Message:
        nonlocal size
        try:
            async with asyncio.timeout(SECONDS_BETWEEN_PIECES):
                message = await receive()
        except TimeoutError as exc:
            raise TimedOut("no data arrived for a minute: send the file again") from exc
        size += len(message.get("body", b""))
        if size > limit:
            raise TooLarge(f"the file is over the limit of {limit} bytes (LLC_MAX_IMPORT_BYTES)")
        return message

    return counting
