"""Periodic maintenance: cleans up after killed processes and ended jobs."""

from __future__ import annotations

import asyncio
import logging
from random import uniform
from typing import Final

from latent_core.db import (
    model_answers,
    placement,
    query_log,
    resumable_uploads,
    token_calls,
    uploads,
)
from latent_core.db.documents import duplicates, image_texts, page_words
from latent_core.domain.errors import LatentError
from latent_core.ingest.abandon import purge_abandoned
from latent_core.ingest.delete import (
    LEASES_BETWEEN_LOOKS,
    LEASES_TO_WAIT,
    enqueue_collection,
)
from latent_core.ingest.stage import enqueue_dedup_pending
from latent_core.refresh.lifecycle import begin_move
from latent_core.settings import Settings
from latent_core.stack import Stack
from latent_workers.container_sizes import measure_containers

logger = logging.getLogger(__name__)

PRINCIPAL: Final = "local:you"


async def tidy(settings: Settings, stack: Stack) -> None:
    """Run at the start and then every ten leases, until cancelled. Jobs remove what it finds."""
    while True:
        try:
            await look(settings, stack)
        except LatentError as exc:
            logger.warning("maintenance_failed", extra={"cause": str(exc)})
        except Exception:
            logger.exception("maintenance_failed")
        await asyncio.sleep(LEASES_BETWEEN_LOOKS * settings.lease_seconds * uniform(0.8, 1.2))


async def look(settings: Settings, stack: Stack) -> None:
    """One run: abandoned generations, unreferenced blobs, old texts of images and words of pages, old counts of
    uploads and calls, uploads that were not continued, unused answers of language models, old queries of logs,
    containers that have outgrown a shared collection, and sizes of containers."""
    lease = settings.lease_seconds
    found = await purge_abandoned(stack.db, principal=PRINCIPAL, lease_seconds=lease)
    if found:
        logger.info("abandoned_generations", extra={"documents": found})
    async with stack.db.transaction() as conn:
        await image_texts.forget(conn)
        await page_words.forget(conn)
        await uploads.forget_usage(conn)
        await resumable_uploads.expire(conn)
        await token_calls.forget(conn)
        await model_answers.forget(conn)
        await query_log.forget(conn)
        for container_id in await duplicates.with_backlog(conn):
            await enqueue_dedup_pending(conn, container_id, principal=PRINCIPAL)
        await enqueue_collection(conn, principal=PRINCIPAL, delay_seconds=LEASES_TO_WAIT * lease)
        outgrown = await placement.outgrown(conn)
    for container_id in outgrown:
        async with stack.db.transaction() as conn:
            job_id = await begin_move(conn, container_id, principal=PRINCIPAL)
        if job_id is not None:
            logger.info(
                "container_outgrew_shared_collection",
                extra={"container_id": container_id, "job_id": job_id},
            )
    stack.wake()
    await measure_containers(stack)
