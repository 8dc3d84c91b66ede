"""Recurring work: scheduled backups, expired documents, and archives past their retention.

Every worker checks; an advisory lock allows one at a time, and the transaction that enqueues work also records it.
If no worker was running when a backup was due, it is made up for once.
"""

from __future__ import annotations

import asyncio
import logging
from random import uniform
from typing import Final

from latent_core.db import audit, containers, schedules
from latent_core.db.connection import Connection, Database
from latent_core.db.documents import documents
from latent_core.db.transfer import archives, import_rows
from latent_core.domain.errors import LatentError
from latent_core.domain.job import PRIORITY_LATER
from latent_core.domain.manifest.model import due_since
from latent_core.ingest.delete import (
    LEASES_TO_WAIT,
    delete_documents,
    delete_records,
    enqueue_collection,
    enqueue_removal,
)
from latent_core.settings import Settings
from latent_core.stack import Stack
from latent_core.transfer.requests import ExportPayload, request_export
from latent_core.wire.containers import ContainerState

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_LOOKS: Final = 30.0
BACKUP: Final = "backup"
PRINCIPAL: Final = "local:you"
DOCUMENTS_PER_DELETION: Final = 500


async def keep_schedule(settings: Settings, stack: Stack) -> None:
    """Check at the start and then every half minute, until cancelled."""
    while True:
        try:
            await look(settings, stack)
        except LatentError as exc:
            logger.warning("schedule_check_failed", extra={"cause": str(exc)})
        except Exception:
            logger.exception("schedule_check_failed")
        await asyncio.sleep(SECONDS_BETWEEN_LOOKS * uniform(0.8, 1.2))


async def look(settings: Settings, stack: Stack) -> None:
    """One check of everything."""
    lease = settings.lease_seconds
    async with stack.db.transaction() as conn:
        enqueued = await schedule_backups(conn)
    async with stack.db.transaction() as conn:
        for container_id in await import_rows.disown(conn):
            await enqueue_removal(conn, container_id, principal=PRINCIPAL)
            enqueued += 1
        if await archives.expire(conn):
            delay = LEASES_TO_WAIT * lease
            await enqueue_collection(conn, principal=PRINCIPAL, delay_seconds=delay)
    enqueued += await delete_expired(stack.db, lease_seconds=lease)
    enqueued += await delete_past_expiry(stack.db, lease_seconds=lease)
    if enqueued:
        stack.wake()


async def schedule_backups(conn: Connection) -> int:
    """Enqueue the backups that became due since the last check, in the caller's transaction; returns their number."""
    now = await schedules.try_lock(conn)
    if now is None:
        return 0
    known = await schedules.kept(conn, BACKUP)
    scheduled = await containers.all_(conn, key=["backup", "cron"])
    for container_id in known.keys() - {container.id for container in scheduled}:
        await schedules.drop(conn, container_id, BACKUP)
    enqueued = 0
    for container in scheduled:
        cron, row = container.manifest.backup.cron, known.get(container.id)
        if cron is None:
            continue
        if row is None or row["cron"] != cron:
            await schedules.keep(conn, container.id, BACKUP, cron, now)
        elif due_since(cron, row["last_at"], now) is not None:
            await schedules.keep(conn, container.id, BACKUP, cron, now)
            await request_export(
                conn,
                container.id,
                ExportPayload(kept=True),
                principal=PRINCIPAL,
                priority=PRIORITY_LATER,
            )
            enqueued += 1
    return enqueued


async def delete_expired(db: Database, *, lease_seconds: float) -> int:
    """Delete documents past ``ingest.ttl_days`` in active containers; returns their number."""
    async with db.transaction() as conn:
        found = await containers.all_(conn, key=["ingest", "ttl_days"])
    total = 0
    for container in found:
        days = container.manifest.ingest.ttl_days
        if days is not None and container.state is ContainerState.ACTIVE:
            while gone := await _delete_some(db, container.id, days, lease_seconds):
                total += gone
                logger.info(
                    "documents_expired", extra={"container_id": container.id, "documents": gone}
                )
    return total


async def delete_past_expiry(db: Database, *, lease_seconds: float) -> int:
    """Delete documents past the expiry that their sender gave; returns their number. Searches skip them already."""
    async with db.transaction() as conn:
        found = await schedules.containers_past_expiry(conn)
    total = 0
    for container_id in found:
        while gone := await _delete_some(db, container_id, None, lease_seconds):
            total += gone
    return total


async def _delete_some(
    db: Database, container_id: str, days: int | None, lease_seconds: float
) -> int:
    """A document that is just being published is locked, and checked again after that. ``days`` is the container's
    rule; None: the documents' own expiry."""
    async with db.transaction() as conn:
        if await containers.hold(conn, container_id) is not ContainerState.ACTIVE:
            return 0
        ids = await schedules.expired(conn, container_id, days, DOCUMENTS_PER_DELETION)
        await documents.lock(conn, list(ids))
        expired = await schedules.still_expired(conn, list(ids), days)
        deleted = (
            await delete_documents(
                conn, container_id, list(expired), principal=PRINCIPAL, lease_seconds=lease_seconds
            )
            if expired
            else None
        )
        if deleted is None:
            return 0
        await audit.note_each(
            conn,
            principal=PRINCIPAL,
            action="document.expire",
            container_id=container_id,
            objects=list(expired.values()),
            request_id=None,
        )
    await delete_records(
        db,
        container_id,
        deleted.corpora,
        principal=PRINCIPAL,
        lease_seconds=lease_seconds,
        of=deleted.job_id,
    )
    return len(expired)
