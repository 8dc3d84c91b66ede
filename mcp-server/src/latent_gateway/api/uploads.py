"""Uploads: streamed to disk, stored by their hash."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import mimetypes
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path, PurePosixPath
from tempfile import NamedTemporaryFile
from typing import IO, Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from starlette.requests import ClientDisconnect

from latent_core.blobs.writer import store_file
from latent_core.db import audit, uploads
from latent_core.domain.errors import Invalid, OutOfSpace, TimedOut, TooLarge
from latent_core.domain.ids import Sha256
from latent_core.wire.documents import UploadAnswer, UploadView
from latent_gateway.auth import access
from latent_gateway.auth.quotas import Meter, check_capacity
from latent_gateway.context import Caller, RequestId, Shared
from latent_gateway.envelope import json_answer

router = APIRouter(tags=["ingest"])

SECONDS_BETWEEN_PIECES = 60.0
_BINARY: Final = {"schema": {"type": "string", "format": "binary"}}
BODY: Final = {"content": {"application/octet-stream": _BINARY}, "required": True}


@router.post(
    "/v1/containers/{container_id}/uploads",
    response_model=UploadAnswer,
    status_code=201,
    openapi_extra={"requestBody": BODY},
)
async def upload(
    container_id: str,
    request: Request,
    filename: Annotated[str, Query(min_length=1, max_length=1024)],
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
) -> Response:
    """Store the body of the request. ``containers/add`` takes the ``file_ref`` of the answer."""
    name, declared = safe_filename(filename), declared_bytes(request)
    async with shared.stack.db.transaction() as conn:
        container = await access.writable(conn, caller, container_id)
        left = await shared.quotas.bytes_left(conn, caller, declared)
        await shared.stack.capacity.check(conn)
    await check_capacity(shared.stack.tmp, shared.settings.min_free_bytes, declared)
    metered = shared.quotas.metered(shared.stack.db, caller, left)
    path, sha256, size = await receive(
        request, shared.stack.tmp, shared.settings.max_upload_bytes, metered
    )
    try:
        store = shared.stack.blobs.of(container.bucket)
        await store_file(shared.stack.db, store, path, sha256)
    finally:
        await asyncio.to_thread(path.unlink, missing_ok=True)
    async with shared.stack.db.transaction() as conn:
        await access.held(conn, container)
        stored = await uploads.insert(
            conn,
            container_id=container.id,
            sha256=sha256,
            filename=name,
            mime=guess_mime(name, request.headers.get("content-type")),
            size=size,
            principal=caller.name,
            bucket=container.bucket,
        )
        await audit.note(
            conn,
            principal=caller.name,
            token_id=caller.token_id,
            action="upload.add",
            container_id=container.id,
            object_=f"{stored.id} {name}",
            request_id=request_id,
        )
    return json_answer(UploadAnswer(upload=view_of(stored)), request_id, status=201)


def view_of(stored: uploads.Upload) -> UploadView:
    return UploadView(
        file_ref=str(stored.id),
        filename=stored.filename,
        mime=stored.mime,
        bytes=stored.bytes,
        sha256=stored.sha256,
    )


def safe_filename(filename: str) -> str:
    """The last part of a name, without control characters; ``Invalid`` if nothing remains."""
    name = PurePosixPath(filename.replace("\\", "/")).name
    name = "".join(c for c in name if c.isprintable() and not 0xD800 <= ord(c) <= 0xDFFF).strip()
    if not name or name in (".", ".."):
        raise Invalid(f"'{filename[:80]}' is not a file name")
    return name[:255]


def guess_mime(name: str, given: str | None) -> str:
    """The type that the sender declares, if it is specific; else by the file extension."""
    declared_type = (given or "").split(";")[0].strip().lower()
    if declared_type and declared_type not in (
        "application/octet-stream",
        "application/x-www-form-urlencoded",
    ):
        return declared_type[:255]
    return mimetypes.guess_type(name)[0] or "application/octet-stream"


def declared_bytes(request: Request) -> int:
    """The size that the sender declares; 0 without."""
    declared = request.headers.get("content-length", "")
    return int(declared) if declared.isdecimal() and len(declared) < 19 else 0


async def receive(
    request: Request,
    folder: Path,
    limit: int,
    metered: AbstractAsyncContextManager[Meter],
    setting: str = "LLC_MAX_UPLOAD_BYTES",
) -> tuple[Path, Sha256, int]:
    """Stream the body into a temporary file; returns it with its hash and size. ``setting`` is the name of the
    limit."""
    declared = declared_bytes(request)
    if declared > limit:
        raise TooLarge(f"the upload has {declared} bytes; the limit is {limit} ({setting})")
    file = NamedTemporaryFile(dir=folder, prefix="upload-", delete=False)  # noqa: SIM115 - closed below
    path = Path(file.name)
    try:
        async with metered as meter:
            sha256, size = await _write(request, file, limit, setting, meter)
    except BaseException:
        # On a full disk closing writes the rest of the buffer again, and fails again.
        with suppress(OSError):
            await asyncio.to_thread(file.close)
        await asyncio.to_thread(path.unlink, missing_ok=True)
        raise
    await asyncio.to_thread(file.close)
    return path, sha256, size


async def _write(
    request: Request, file: IO[bytes], limit: int, setting: str, meter: Meter
) -> tuple[Sha256, int]:
    digest, size = hashlib.sha256(), 0
    async for piece in body_pieces(request.stream()):
        size += len(piece)
        meter.took(len(piece))
        if size > limit:
            raise TooLarge(f"the upload is over the limit of {limit} bytes ({setting})")
        digest.update(piece)
        try:
            await asyncio.to_thread(file.write, piece)
        except OSError as exc:
            raise disk_trouble(exc) from exc
    try:
        await asyncio.to_thread(file.flush)
    except OSError as exc:
        raise disk_trouble(exc) from exc
    return Sha256(digest.hexdigest()), size


async def body_pieces(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The body as it arrives; ``TimedOut`` after a minute without data, ``Invalid`` when the sender disconnects."""
    while True:
        try:
            async with asyncio.timeout(SECONDS_BETWEEN_PIECES):
                piece = await anext(stream, None)
        except TimeoutError as exc:
            raise TimedOut("no data arrived for a minute: send the upload again") from exc
        except ClientDisconnect as exc:
            raise Invalid("the upload was interrupted") from exc
        if piece is None:
            return
        yield piece


def disk_trouble(exc: OSError) -> OutOfSpace:
    if exc.errno in (errno.ENOSPC, errno.EDQUOT):
        return OutOfSpace(
            "the disk is full: free space in the data directory, then send the upload again"
        )
    return OutOfSpace(f"the upload could not be written to the data directory: {exc.strerror}")
