"""Backups: create, list, download, verify, restore, delete. A backup outlives its container; then the owner of the
installation owns it."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field

from latent_core.db import audit
from latent_core.db.connection import Connection
from latent_core.db.transfer import archives
from latent_core.domain import cursors
from latent_core.domain.errors import NotFound
from latent_core.domain.ids import Sha256
from latent_core.domain.job import ArchiveKind
from latent_core.domain.text import Text
from latent_core.domain.token import Scope
from latent_core.ingest.delete import enqueue_collection
from latent_core.transfer.reader import ArchiveOpening, read_opening
from latent_core.transfer.requests import (
    ExportPayload,
    ImportPayload,
    ImportPolicy,
    policy_of,
    request_export,
)
from latent_core.wire.base import RequestBody
from latent_core.wire.jobs import JobAccepted
from latent_core.wire.transfers import (
    ArchiveAnswer,
    ArchiveView,
    BackupBody,
    BackupList,
    BackupRemoved,
    ImportAnswer,
)
from latent_gateway.api.transfers import (
    begin_import,
    is_whole,
    link_of,
    reaches,
)
from latent_gateway.auth import access
from latent_gateway.auth.principal import Principal
from latent_gateway.context import Caller, RequestId, Shared, SignedLinks
from latent_gateway.envelope import json_answer

router = APIRouter(tags=["backups"])

BackupId = Annotated[int, Path(ge=1, lt=2**63)]


class RestoreBody(RequestBody):
    container_id: Annotated[Text, Field(max_length=64)] | None = None
    """Default: the id in the backup."""
    merge: bool = False
    policy: ImportPolicy | None = None
    """For a merge; default ``skip``."""


@router.get("/v1/backups", response_model=BackupList)
async def list_backups(
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    container_id: Annotated[Text | None, Query(max_length=64)] = None,
    limit: Annotated[int, Query(ge=1, le=cursors.MAX_PAGE)] = 100,
    cursor: Annotated[str | None, Query(max_length=128)] = None,
) -> Response:
    """Backups, newest first: of one container, or of all containers that the caller owns."""
    before = cursors.decode_int(cursor, archives.LAST)
    async with shared.stack.db.transaction() as conn:
        own = {c.id: c for c in await access.all_owned(conn, caller)}
        gone = await archives.ownerless(conn) if caller.is_owner else []
        ids = [*own, *gone]
        if container_id is not None and container_id not in ids:
            raise access.unknown(container_id)
        container_ids = ids if container_id is None else [container_id]
        found = await archives.listed(
            conn, ArchiveKind.BACKUP, container_ids, limit + 1, before=before
        )
    more = cursors.encode(found[limit - 1].id) if len(found) > limit else None
    seen = [one for one in found[:limit] if one.container_id in gone or reaches(caller, own, one)]
    return json_answer(BackupList(backups=seen, next_cursor=more), request_id)


@router.post("/v1/backups", response_model=JobAccepted, status_code=202)
async def make(body: BackupBody, shared: Shared, caller: Caller, request_id: RequestId) -> Response:
    """Back up a container now."""
    async with shared.stack.db.transaction() as conn:
        container = await access.owned(conn, caller, body.container_id)
        await shared.quotas.check_queue(conn, caller)
        await shared.stack.capacity.check(conn)
        job_id = await request_export(
            conn, container.id, ExportPayload(kept=True), principal=caller.name
        )
        await audit.note(
            conn,
            principal=caller.name,
            token_id=caller.token_id,
            action="container.backup",
            container_id=container.id,
            object_=str(job_id),
            request_id=request_id,
        )
    shared.stack.wake()
    return json_answer(JobAccepted(job_id=job_id), request_id, status=202)


@router.get("/v1/backups/{backup_id}", response_model=ArchiveAnswer)
async def show(
    backup_id: BackupId,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    links: SignedLinks,
) -> Response:
    """One backup, with a link to its file."""
    async with shared.stack.db.transaction() as conn:
        found = await _owned(conn, caller, backup_id)
    if not await is_whole(shared, found):
        raise NotFound(
            f"the file of backup {backup_id} is missing or incomplete: create a new backup (latent backup now)",
            backup_id=backup_id,
        )
    return json_answer(ArchiveAnswer(url=link_of(found, links), archive=found), request_id)


@router.delete("/v1/backups/{backup_id}", response_model=BackupRemoved, status_code=202)
async def remove(
    backup_id: BackupId, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Delete a backup. A job removes its bytes. A restore that has started keeps them until it ends."""
    async with shared.stack.db.transaction() as conn:
        found = await _owned(conn, caller, backup_id)
        if not await archives.remove(conn, backup_id, ArchiveKind.BACKUP):
            raise _unknown(backup_id)
        job_id = await enqueue_collection(conn, principal=caller.name, delay_seconds=0)
        await audit.note(
            conn,
            principal=caller.name,
            token_id=caller.token_id,
            action="backup.delete",
            container_id=found.container_id,
            object_=str(backup_id),
            request_id=request_id,
        )
    shared.stack.wake()
    return json_answer(BackupRemoved(job_id=job_id, backup=found), request_id, status=202)


@router.post("/v1/backups/{backup_id}/verify", response_model=JobAccepted, status_code=202)
async def verify(
    backup_id: BackupId, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Read a backup to its end. If it is damaged, the job fails and says where."""
    async with shared.stack.db.transaction() as conn:
        found = await _owned(conn, caller, backup_id)
        await shared.quotas.check_queue(conn, caller)
        payload = ExportPayload(kept=True, verify=found.id)
        job_id = await request_export(conn, found.container_id, payload, principal=caller.name)
    shared.stack.wake()
    return json_answer(JobAccepted(job_id=job_id), request_id, status=202)


@router.post("/v1/backups/{backup_id}/restore", response_model=ImportAnswer, status_code=202)
async def restore(
    backup_id: BackupId, body: RestoreBody, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Import a backup: as a new container, or with ``merge`` into an existing one."""
    chosen = policy_of(body.policy, merge=body.merge)
    access.require(caller, Scope.ADMIN)
    async with shared.stack.db.transaction() as conn:
        await shared.quotas.check_queue(conn, caller)
        await shared.stack.capacity.check(conn)
        found = await _owned(conn, caller, backup_id)
    opening = await _opening(shared, found)
    payload = ImportPayload(
        sha256=found.sha256,
        bucket=found.bucket,
        filename=found.filename,
        target=body.container_id or found.container_id,
        merge=body.merge,
        policy=chosen,
    )
    async with shared.stack.db.transaction() as conn:
        job_id = await begin_import(conn, caller, opening, payload, found.bytes, request_id)
    shared.stack.wake()
    return json_answer(
        ImportAnswer(job_id=job_id, container_id=payload.target), request_id, status=202
    )


async def _opening(shared: Shared, archive: ArchiveView) -> ArchiveOpening:
    path = await shared.stack.blobs.of(archive.bucket).local_copy(Sha256(archive.sha256))

    def read() -> ArchiveOpening:
        with path.open("rb") as file:
            return read_opening(file)

    return await asyncio.to_thread(read)


async def _owned(conn: Connection, caller: Principal, backup_id: int) -> ArchiveView:
    """The backup; ``NotFound`` both for a missing backup and for one that the caller may not see."""
    access.require(caller, Scope.ADMIN)
    found = await archives.get(conn, backup_id, ArchiveKind.BACKUP)
    own = {c.id: c for c in await access.all_owned(conn, caller)}
    gone = await archives.ownerless(conn) if caller.is_owner else []
    if found is None or not (found.container_id in gone or reaches(caller, own, found)):
        raise _unknown(backup_id)
    return found


def _unknown(backup_id: int) -> NotFound:
    return NotFound(
        f"backup {backup_id} does not exist, or you may not see it", backup_id=backup_id
    )
