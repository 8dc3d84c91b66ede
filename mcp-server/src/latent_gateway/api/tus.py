"""The headers of tus 1.0, the protocol of resumable uploads (ADR 0062): version, offsets and metadata."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from email.utils import format_datetime
from typing import Any, Final

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect
from typing_extensions import override

from latent_core.domain.errors import Conflict, Invalid, LatentError, PreconditionFailed
from latent_core.wire.documents import ResumableUploadView
from latent_gateway.envelope import error_answer
from latent_gateway.middleware.auth import LINGER_BYTES, LINGER_SECONDS, MEGABYTE

VERSION: Final = "1.0.0"
EXTENSIONS: Final = "creation,creation-with-upload,expiration,termination"
OFFSET_STREAM: Final = "application/offset+octet-stream"
SHA256: Final = re.compile("[0-9a-f]{64}")
DIGITS: Final = re.compile("^[0-9]{1,18}$")
MAX_METADATA_CHARS: Final = 8192
METADATA: Final = ("filename", "filetype", "sha256")


class OffsetConflict(Conflict):
    """The bytes do not continue where the upload is."""

    def __init__(self, received: int) -> None:
        super().__init__(
            f"this upload has {received} bytes: continue at Upload-Offset {received}",
            received=received,
        )
        self.received = received


@dataclass(frozen=True, slots=True)
class UploadMetadata:
    """What the header ``Upload-Metadata`` says of the file."""

    filename: str
    filetype: str | None = None
    sha256: str | None = None
    """Of the whole file; compared at the end."""

    @classmethod
    def parse(cls, header: str | None) -> UploadMetadata:
        """``Invalid`` for a header that is not of the form ``key base64,…`` or has unknown keys."""
        found: dict[str, str] = {}
        if len(header or "") > MAX_METADATA_CHARS:
            raise Invalid(f"Upload-Metadata has more than {MAX_METADATA_CHARS} characters")
        for pair in (header or "").split(","):
            key, _, value = pair.strip().partition(" ")
            if key and key not in METADATA:
                raise Invalid(
                    f"Upload-Metadata has the key '{key[:80]}'; known are {', '.join(METADATA)}"
                )
            if key:
                found[key] = _decoded(key, value)
        if "filename" not in found:
            raise Invalid("Upload-Metadata has no filename: send 'filename <base64>'")
        declared = found.get("sha256")
        if declared is not None and not SHA256.fullmatch(declared):
            raise Invalid("sha256 in Upload-Metadata must be 64 lower-case hexadecimal digits")
        return cls(found["filename"], found.get("filetype"), declared)


def _decoded(key: str, value: str) -> str:
    try:
        return base64.b64decode(value, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as exc:
        raise Invalid(f"{key} in Upload-Metadata is not the base64 of UTF-8 text") from exc


def number(request: Request, header: str) -> int:
    """The value of a header that is a number of bytes; ``Invalid`` if it is missing or is none."""
    value = request.headers.get(header, "")
    if not DIGITS.fullmatch(value):
        raise Invalid(f"the header {header} must be a number of bytes, not '{value[:40]}'")
    return int(value)


def has_bytes(request: Request) -> bool:
    """Whether the body has bytes of the file; ``Invalid`` if it has a body of another type."""
    declared = request.headers.get("content-length")
    chunked = "transfer-encoding" in request.headers
    if not chunked and declared in (None, "0"):
        return False
    given = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if given != OFFSET_STREAM:
        raise Invalid(f"the Content-Type of the bytes must be {OFFSET_STREAM}, not '{given[:80]}'")
    return True


def state_headers(view: ResumableUploadView) -> dict[str, str]:
    """The headers that say how far an upload is."""
    headers = {
        "Upload-Offset": str(view.received),
        "Upload-Length": str(view.length),
        "Cache-Control": "no-store",
    }
    if view.expires_at is not None:
        headers["Upload-Expires"] = format_datetime(view.expires_at, usegmt=True)
    return headers


def capabilities(max_bytes: int) -> dict[str, str]:
    return {
        "Tus-Version": VERSION,
        "Tus-Extension": EXTENSIONS,
        "Tus-Max-Size": str(max_bytes),
    }


Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class TusRoute(APIRoute):
    """A route of the protocol: it checks the version, and errors have the headers of the protocol, too."""

    @override
    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def answered(request: Request) -> Response:
            try:
                check_version(request)
                answer = await handle(request)
            except LatentError as error:
                request.app.state.gateway.stack.capacity.heard(error)
                await drain(request)
                answer = error_answer(error, request.scope["latent.request_id"])
                if isinstance(error, OffsetConflict):
                    answer.headers["Upload-Offset"] = str(error.received)
                if error.status == 412:
                    answer.headers["Tus-Version"] = VERSION
            answer.headers["Tus-Resumable"] = VERSION
            return answer

        return answered


def check_version(request: Request) -> None:
    """``PreconditionFailed`` for a request of another version. GET and OPTIONS need no version."""
    given = request.headers.get("tus-resumable")
    if request.method in ("GET", "OPTIONS") or given == VERSION:
        return
    named = "is missing" if given is None else f"names version '{given[:40]}'"
    raise PreconditionFailed(f"the header Tus-Resumable {named}; this server speaks {VERSION}")


DRAINED_BYTES: Final = LINGER_BYTES + 8 * MEGABYTE


async def drain(request: Request) -> None:
    """Read the rest of a refused body for a moment, so that the sender can read the answer."""
    size = 0
    with suppress(TimeoutError, ClientDisconnect, RuntimeError):  # RuntimeError: it was read before
        async with asyncio.timeout(LINGER_SECONDS):
            async for piece in request.stream():
                size += len(piece)
                if size > DRAINED_BYTES:
                    return
