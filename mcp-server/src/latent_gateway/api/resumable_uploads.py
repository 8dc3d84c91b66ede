"""Resumable uploads: begin with a length, append at an offset, ask for the offset (tus 1.0, ADR 0062)."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from fastapi import APIRouter, Request, Response

from latent_core.db import resumable_uploads as rows, uploads
from latent_core.db.connection import Connection
from latent_core.db.resumable_uploads import ResumableUpload
from latent_core.db.uploads import Upload
from latent_core.domain.errors import Conflict, Invalid, NotFound, RateLimited, TooLarge
from latent_core.wire.documents import ResumableUploadAnswer, ResumableUploadView
from latent_gateway.api import tus
from latent_gateway.api.upload_parts import PartReceiver
from latent_gateway.api.uploads import declared_bytes, guess_mime, safe_filename, view_of
from latent_gateway.auth import access
from latent_gateway.auth.access import Writable
from latent_gateway.auth.principal import Principal
from latent_gateway.auth.quotas import check_capacity
from latent_gateway.context import Caller, Gateway, RequestId, Shared
from latent_gateway.envelope import json_answer

router = APIRouter(tags=["ingest"], route_class=tus.TusRoute)

UPLOADS: Final = "/v1/containers/{container_id}/resumable-uploads"
ONE: Final = f"{UPLOADS}/{{upload_id}}"
MAX_UNFINISHED: Final = 1000
"""Per principal."""
UNFINISHED_RETRY_SECONDS: Final = 60
_BYTES: Final = {
    "content": {tus.OFFSET_STREAM: {"schema": {"type": "string", "format": "binary"}}},
    "required": False,
}


def _header(name: str, **schema: object) -> dict[str, object]:
    return {"name": name, "in": "header", "required": True, "schema": {"type": "string", **schema}}


_VERSION: Final = _header("Tus-Resumable", const=tus.VERSION)
_LENGTH: Final = _header("Upload-Length", pattern=tus.DIGITS.pattern)
_OFFSET: Final = _header("Upload-Offset", pattern=tus.DIGITS.pattern)
_METADATA: Final = _header("Upload-Metadata", maxLength=tus.MAX_METADATA_CHARS)
_BEGINS: Final = {"requestBody": _BYTES, "parameters": [_VERSION, _LENGTH, _METADATA]}
_APPENDS: Final = {"requestBody": _BYTES, "parameters": [_VERSION, _OFFSET]}


@router.options(UPLOADS, status_code=204, include_in_schema=False)
async def capabilities(container_id: str, shared: Shared, caller: Caller) -> Response:
    """What this server offers."""
    async with shared.stack.db.reading() as conn:
        await access.writable(conn, caller, container_id)
    return Response(status_code=204, headers=tus.capabilities(shared.settings.max_upload_bytes))


@router.post(UPLOADS, response_model=ResumableUploadAnswer, status_code=201, openapi_extra=_BEGINS)
async def create(
    container_id: str,
    request: Request,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
) -> Response:
    """Begin an upload of ``Upload-Length`` bytes; a body has its first ones. ``Location`` continues it."""
    view = await created(container_id, request, shared, caller, request_id)
    place = f"/v1/containers/{container_id}/resumable-uploads/{view.file_ref}"
    headers = {"Location": place, **tus.state_headers(view)}
    return json_answer(
        ResumableUploadAnswer(resumable_upload=view), request_id, status=201, headers=headers
    )


async def created(
    container_id: str, request: Request, shared: Gateway, caller: Principal, request_id: str
) -> ResumableUploadView:
    """A new upload, with the bytes of the body. Without ``Location`` no one could continue it, so it is removed if
    the body fails."""
    length = _length(request, shared.settings.max_upload_bytes)
    metadata = tus.UploadMetadata.parse(request.headers.get("upload-metadata"))
    filled = tus.has_bytes(request)
    name = safe_filename(metadata.filename)
    async with shared.stack.db.transaction() as conn:
        container = await access.writable(conn, caller, container_id)
        left = await shared.quotas.bytes_left(conn, caller, length)
        await shared.stack.capacity.check(conn)
        await _check_unfinished(conn, caller)
    await check_capacity(shared.stack.tmp, shared.settings.min_free_bytes, length)
    async with shared.stack.db.transaction() as conn:
        await access.held(conn, container)
        upload = await rows.insert(
            conn,
            container_id=container.id,
            bucket=container.bucket,
            principal=caller.name,
            filename=name,
            mime=guess_mime(name, metadata.filetype),
            length=length,
            declared_sha256=metadata.sha256,
        )
    if not filled and length:
        return _unfinished(upload, upload.received)
    try:
        return await _receive(shared, caller, container, upload, request, left, request_id)
    except BaseException:
        async with shared.stack.db.transaction() as conn:
            await rows.delete(conn, upload.id, upload.principal)
        raise


def _length(request: Request, limit: int) -> int:
    if "upload-defer-length" in request.headers:
        raise Invalid("Upload-Defer-Length is not supported: give the Upload-Length")
    length = tus.number(request, "Upload-Length")
    if length > limit:
        raise TooLarge(
            f"the upload has {length} bytes; the limit is {limit} (LLC_MAX_UPLOAD_BYTES)"
        )
    return length


async def _check_unfinished(conn: Connection, caller: Principal) -> None:
    if await rows.unfinished(conn, caller.name, MAX_UNFINISHED) >= MAX_UNFINISHED:
        raise RateLimited(
            f"you have {MAX_UNFINISHED} unfinished uploads, which is the limit: finish or delete some. "
            "They are deleted a day after their last bytes",
            retry_after=UNFINISHED_RETRY_SECONDS,
        )


@router.get(ONE, response_model=ResumableUploadAnswer)
async def show(
    container_id: str, upload_id: UUID, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """How far an upload is, and the upload that it has become."""
    view = await shown(container_id, upload_id, shared, caller)
    headers = tus.state_headers(view)
    return json_answer(ResumableUploadAnswer(resumable_upload=view), request_id, headers=headers)


@router.head(ONE, include_in_schema=False)
async def offset(container_id: str, upload_id: UUID, shared: Shared, caller: Caller) -> Response:
    """How far an upload is, in headers."""
    view = await shown(container_id, upload_id, shared, caller)
    return Response(status_code=200, headers=tus.state_headers(view))


async def shown(
    container_id: str, upload_id: UUID, shared: Gateway, caller: Principal
) -> ResumableUploadView:
    """An upload of the caller; ``NotFound`` for all others."""
    async with shared.stack.db.reading() as conn:
        container = await access.writable(conn, caller, container_id)
        found = await _find(conn, container, upload_id, caller)
    return _view(found)


@router.patch(ONE, status_code=204, openapi_extra=_APPENDS)
async def append(
    container_id: str,
    upload_id: UUID,
    request: Request,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
) -> Response:
    """Append the body at ``Upload-Offset``. What the answer's ``Upload-Offset`` says is stored durably."""
    view = await appended(container_id, upload_id, request, shared, caller, request_id)
    return Response(status_code=204, headers=tus.state_headers(view))


async def appended(
    container_id: str,
    upload_id: UUID,
    request: Request,
    shared: Gateway,
    caller: Principal,
    request_id: str,
) -> ResumableUploadView:
    """The upload with the bytes of the body; ``OffsetConflict`` if it is not at their offset."""
    start, declared = tus.number(request, "Upload-Offset"), declared_bytes(request)
    tus.has_bytes(request)
    async with shared.stack.db.transaction() as conn:
        container = await access.writable(conn, caller, container_id)
        upload = await _find(conn, container, upload_id, caller)
        left = await shared.quotas.bytes_left(conn, caller, declared)
        await shared.stack.capacity.check(conn)
    received = upload.bytes if isinstance(upload, Upload) else upload.received
    if start != received:
        raise tus.OffsetConflict(received)
    if isinstance(upload, Upload):
        return _view(upload)
    await check_capacity(shared.stack.tmp, shared.settings.min_free_bytes, declared)
    return await _receive(shared, caller, container, upload, request, left, request_id)


async def _receive(
    shared: Gateway,
    caller: Principal,
    container: Writable,
    upload: ResumableUpload,
    request: Request,
    left: int | None,
    request_id: str,
) -> ResumableUploadView:
    receiver = PartReceiver(shared, caller, container, upload, request_id)
    async with shared.quotas.metered(shared.stack.db, caller, left) as meter:
        await receiver.receive(request.stream(), meter)
    if receiver.complete is not None:
        return _view(receiver.complete)
    return _unfinished(upload, receiver.received)


@router.delete(ONE, status_code=204, openapi_extra={"parameters": [_VERSION]})
async def cancel(container_id: str, upload_id: UUID, shared: Shared, caller: Caller) -> Response:
    """Give up an unfinished upload; its parts are removed."""
    async with shared.stack.db.transaction() as conn:
        container = await access.writable(conn, caller, container_id)
        found = await _find(conn, container, upload_id, caller)
        if isinstance(found, Upload):
            raise Conflict(
                "this upload is complete: it is removed by itself if no document is made of it"
            )
        await rows.delete(conn, found.id, caller.name)
    return Response(status_code=204)


async def _find(
    conn: Connection, container: Writable, upload_id: UUID, caller: Principal
) -> ResumableUpload | Upload:
    """Unfinished or complete; ``NotFound`` if it has expired or is another principal's."""
    unfinished = await rows.get(conn, container.id, upload_id, caller.name)
    found = unfinished or await uploads.own(conn, container.id, upload_id, caller.name)
    if found is None:
        raise NotFound(
            f"upload '{upload_id}' does not exist, is not yours, or has expired: begin it again",
            upload_id=str(upload_id),
        )
    return found


def _view(found: ResumableUpload | Upload) -> ResumableUploadView:
    if isinstance(found, ResumableUpload):
        return _unfinished(found, found.received)
    return ResumableUploadView(
        file_ref=str(found.id),
        filename=found.filename,
        mime=found.mime,
        length=found.bytes,
        received=found.bytes,
        expires_at=None,
        upload=view_of(found),
    )


def _unfinished(upload: ResumableUpload, received: int) -> ResumableUploadView:
    return ResumableUploadView(
        file_ref=str(upload.id),
        filename=upload.filename,
        mime=upload.mime,
        length=upload.length,
        received=received,
        expires_at=upload.expires_at,
        upload=None,
    )
