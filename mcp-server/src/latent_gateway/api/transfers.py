"""Exports and imports: a container as one file."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from latent_core.blobs.writer import store_file
from latent_core.db import audit, containers
from latent_core.db.connection import Connection
from latent_core.db.transfer import archives
from latent_core.domain.errors import Conflict, Invalid, NotFound
from latent_core.domain.ids import CONTAINER_SLUG, Sha256
from latent_core.domain.job import ArchiveKind
from latent_core.domain.text import Text
from latent_core.domain.token import Scope
from latent_core.runtime.failpoint import failpoint
from latent_core.search.readable import Readable
from latent_core.transfer.reader import ArchiveOpening, read_opening
from latent_core.transfer.records import MEDIA_TYPE
from latent_core.transfer.requests import (
    ExportPayload,
    ImportPayload,
    ImportPolicy,
    policy_of,
    request_export,
    request_import,
)
from latent_core.wire.transfers import (
    ArchiveAnswer,
    ArchiveView,
    ExportAnswer,
    ExportBody,
    ImportAnswer,
)
from latent_gateway.api.uploads import declared_bytes, receive, safe_filename
from latent_gateway.auth import access
from latent_gateway.auth.principal import Principal
from latent_gateway.auth.quotas import check_capacity
from latent_gateway.context import BlobLinks, Caller, Gateway, RequestId, Shared, SignedLinks
from latent_gateway.envelope import json_answer

router = APIRouter(tags=["transfers"])


@router.post(
    "/v1/containers/export",
    response_model=ExportAnswer,
    responses={202: {"model": ExportAnswer, "description": "It is being created."}},
)
async def export(
    body: ExportBody, shared: Shared, caller: Caller, request_id: RequestId, links: SignedLinks
) -> Response:
    """Export the container: a link if the archive exists already, else the job that creates it."""
    answer = await exported(shared, caller, body, links, request_id)
    return json_answer(answer, request_id, status=200 if answer.status == "ready" else 202)


async def exported(
    shared: Gateway, caller: Principal, body: ExportBody, links: BlobLinks, request_id: str
) -> ExportAnswer:
    """The answer of ``export``."""
    async with shared.stack.db.transaction() as conn:
        container = await access.owned(conn, caller, body.container_id)
        key = await archives.contents_key(conn, container.id)
        ready = await archives.ready(
            conn, container.id, vectors=body.vectors, blobs=body.blobs, key=key
        )
    if ready is not None and await is_whole(shared, ready):
        return ExportAnswer(status="ready", url=link_of(ready, links), archive=ready)
    async with shared.stack.db.transaction() as conn:
        container = await access.owned(conn, caller, body.container_id)
        await shared.quotas.check_queue(conn, caller)
        await shared.stack.capacity.check(conn)
        job_id = await request_export(
            conn,
            container.id,
            ExportPayload(vectors=body.vectors, blobs=body.blobs),
            principal=caller.name,
        )
        await audit.note(
            conn,
            principal=caller.name,
            token_id=caller.token_id,
            action="container.export",
            container_id=container.id,
            object_=str(job_id),
            request_id=request_id,
        )
    shared.stack.wake()
    return ExportAnswer(status="queued", job_id=job_id)


@router.get("/v1/exports/{archive_id}", response_model=ArchiveAnswer)
async def show_export(
    archive_id: Annotated[int, Path(ge=1, lt=2**63)],
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    links: SignedLinks,
) -> Response:
    """An export of a job, even if the container has changed since."""
    async with shared.stack.db.transaction() as conn:
        access.require(caller, Scope.ADMIN)
        found = await archives.get(conn, archive_id, ArchiveKind.EXPORT)
        own = {c.id: c for c in await access.all_owned(conn, caller)}
    if found is None or not reaches(caller, own, found):
        raise NotFound(
            f"export {archive_id} does not exist, or you may not see it: export again",
            archive_id=archive_id,
        )
    if not await is_whole(shared, found):
        raise NotFound(
            f"the file of export {archive_id} is missing: export again", archive_id=archive_id
        )
    return json_answer(ArchiveAnswer(url=link_of(found, links), archive=found), request_id)


@router.post("/v1/imports", response_model=ImportAnswer, status_code=202)
async def import_archive(
    request: Request,
    filename: Annotated[str, Query(min_length=1, max_length=1024)],
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    container_id: Annotated[Text | None, Query(max_length=64)] = None,
    merge: bool = False,
    policy: ImportPolicy | None = None,
) -> Response:
    """Receive the bytes of an archive. The job verifies them before it stores anything.

    Creates a container with the archive's id or ``container_id``. With ``merge``, adds to the existing container by
    ``policy`` (default ``skip``).
    """
    access.require(caller, Scope.ADMIN)
    chosen = policy_of(policy, merge=merge)
    name, declared = safe_filename(filename), declared_bytes(request)
    async with shared.stack.db.transaction() as conn:
        await shared.quotas.check_queue(conn, caller)
        await shared.stack.capacity.check(conn)
        left = await shared.quotas.bytes_left(conn, caller, declared)
    await check_capacity(shared.stack.tmp, shared.settings.min_free_bytes, declared)
    path, sha256, size = await receive(
        request,
        shared.stack.tmp,
        shared.settings.max_import_bytes,
        shared.quotas.metered(shared.stack.db, caller, left),
        "LLC_MAX_IMPORT_BYTES",
    )
    try:
        opening = await asyncio.to_thread(_opening, path)
        payload = ImportPayload(
            sha256=sha256,
            filename=name,
            target=container_id or opening.manifest.id,
            merge=merge,
            policy=chosen,
        )
        async with shared.stack.db.transaction() as conn:
            await check_import(conn, caller, opening, payload)
        failpoint("import.before_store")
        await store_file(shared.stack.db, shared.stack.blobs.own, path, sha256)
        failpoint("import.after_store")
    finally:
        await asyncio.to_thread(path.unlink, missing_ok=True)
    async with shared.stack.db.transaction() as conn:
        job_id = await begin_import(conn, caller, opening, payload, size, request_id)
    shared.stack.wake()
    return json_answer(
        ImportAnswer(job_id=job_id, container_id=payload.target), request_id, status=202
    )


def _opening(path: FilePath) -> ArchiveOpening:
    with path.open("rb") as file:
        return read_opening(file)


async def check_import(
    conn: Connection, caller: Principal, opening: ArchiveOpening, payload: ImportPayload
) -> None:
    """Check by the archive's header that the caller may import it; ``Conflict`` if the id is taken."""
    if not CONTAINER_SLUG.match(payload.target):
        raise Invalid(
            f"'{payload.target}' is not a container id: 1 to 63 of a-z, 0-9 and '-', not beginning or ending with '-'"
        )
    if payload.merge:
        access.require(caller, Scope.ADMIN)
        await access.writable(conn, caller, payload.target)
        return
    access.check_creation(caller, payload.target)
    access.check_kept(caller, opening.manifest.model_copy(update={"id": payload.target}))
    if await containers.get(conn, payload.target) is not None:
        raise Conflict(
            f"container '{payload.target}' exists: import under another id (--as), or into it (--merge)"
        )


async def begin_import(
    conn: Connection,
    caller: Principal,
    opening: ArchiveOpening,
    payload: ImportPayload,
    size: int,
    request_id: str,
) -> int:
    """Enqueue the import of stored bytes."""
    await check_import(conn, caller, opening, payload)
    job_id = await request_import(conn, payload, size=size, principal=caller.name)
    await audit.note(
        conn,
        principal=caller.name,
        token_id=caller.token_id,
        action="container.import",
        container_id=payload.target,
        object_=f"{payload.filename} (job {job_id})",
        request_id=request_id,
    )
    return job_id


def reaches(caller: Principal, own: Mapping[str, Readable], archive: ArchiveView) -> bool:
    """Whether the caller's container is the archived one. A newer container with the same id gives access only to
    the owner of the installation."""
    container = own.get(archive.container_id)
    if container is None:
        return False
    return caller.is_owner or archive.created_at >= container.created_at


async def is_whole(shared: Gateway, archive: ArchiveView) -> bool:
    """Whether its file exists with its full size."""
    return await shared.stack.blobs.of(archive.bucket).size(Sha256(archive.sha256)) == archive.bytes


def link_of(archive: ArchiveView, links: BlobLinks) -> str:
    return links.link(archive.bucket, archive.sha256, MEDIA_TYPE, "attachment", archive.filename)
