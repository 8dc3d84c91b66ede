"""Publishes documents: several that are ready at the same time share one transaction.

A transaction costs about the same for one small document as for ten, and two of one container wait for each other
anyway, because each changes the container's statistics. The same holds for writes of vectors. The claim of its own
job fences every document, and one commit makes all of them visible, or none. If it fails, each document is
published alone, so that an error affects no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from latent_core.db.connection import Connection, Database
from latent_core.domain.errors import LatentError
from latent_core.domain.job import NewJob
from latent_core.ingest.delete import enqueue_purges
from latent_core.ingest.publish import (
    PublicationResult,
    StagedGeneration,
    enqueue_if_needed,
    publish,
)
from latent_core.ingest.stage import enqueue_dedup_pending
from latent_core.queue.context import JobContext
from latent_core.queue.enqueue import enqueue_many
from latent_core.queue.errors import ClaimEnded
from latent_core.queue.finish import finish, finish_all
from latent_core.runtime.coalesce import Coalescer
from latent_core.runtime.failpoint import failpoint
from latent_core.runtime.tasks import all_or_first_failure

logger = logging.getLogger(__name__)

SMALL: Final = 32
"""Chunks of a document that gains from a shared transaction: for a larger one, its own cost dominates."""
MAX_CHUNKS: Final = 256
"""Per transaction of several documents: each waits for all."""
MAX_CONCURRENT_ALONE: Final = 4
"""Concurrent single publications: those of one container wait for its statistics, each with a connection."""


@dataclass(frozen=True, slots=True)
class ReadyGeneration:
    """A prepared generation: only its vectors are to be stored, then it is published."""

    ctx: JobContext
    staged: StagedGeneration
    store: Callable[[], Coroutine[Any, Any, None]]
    """Stores the vectors of the live space; idempotent."""
    replaces: bool
    """Another generation of the document was live at the start of the attempt."""
    drawing: NewJob | None = None
    """The job that draws its pages after publication."""
    follow_ups: Sequence[NewJob] = ()
    """``followups_of`` the document."""

    @property
    def steps(self) -> int:
        return len(self.staged.chunks)


class Publisher:
    """Publishes documents and ends their jobs."""

    def __init__(self, db: Database, *, lease_seconds: float) -> None:
        self._db = db
        self._lease_seconds = lease_seconds
        self._coalescer: Coalescer[str, ReadyGeneration, PublicationResult | None] = Coalescer(
            self._together, max_size=MAX_CHUNKS
        )
        self._lanes = asyncio.Semaphore(MAX_CONCURRENT_ALONE)

    async def publish(self, container_id: str, ready: ReadyGeneration) -> PublicationResult:
        """The result of the shared publication: ``now_live`` names the visible documents."""
        await ready.ctx.checkpoint()
        if ready.steps <= SMALL:
            published = await self._coalescer.ask(container_id, ready, size=ready.steps)
            if published is not None:
                return published
            # Who lost its claim learns it before it writes once more.
            await ready.ctx.fence_patiently()
        return await self._alone(container_id, ready)

    async def _together(
        self, container_id: str, ready: Sequence[ReadyGeneration]
    ) -> Sequence[PublicationResult | None]:
        """None for each if the shared publication fails: then each is published alone, and gets its own error or
        wait."""
        try:
            await all_or_first_failure([one.store() for one in ready])
            async with self._db.transaction() as conn:
                await finish_all(conn, [(one.ctx.job, one.steps) for one in ready])
                published = await self._write(conn, container_id, ready)
        except (LatentError, ClaimEnded) as error:
            jobs = [one.ctx.job.id for one in ready]
            logger.info("published_apart", extra={"jobs": jobs, "cause": str(error)})
            return [None] * len(ready)
        except Exception:  # a defect: of one of them, perhaps
            logger.exception("published_apart", extra={"jobs": [one.ctx.job.id for one in ready]})
            return [None] * len(ready)
        for one in ready:
            one.ctx.settled = True
        return [published] * len(ready)

    async def _alone(self, container_id: str, ready: ReadyGeneration) -> PublicationResult:
        await ready.store()

        async def write(conn: Connection) -> PublicationResult:
            await finish(conn, ready.ctx.job)
            return await self._write(conn, container_id, [ready])

        async with self._lanes:
            # A fresh lease: the heartbeat waits while the transaction holds the job's row.
            await ready.ctx.fence_patiently(ready.steps)
            return await ready.ctx.transact(write, last=True)

    async def _write(
        self, conn: Connection, container_id: str, ready: Sequence[ReadyGeneration]
    ) -> PublicationResult:
        published = await publish(conn, container_id, [one.staged for one in ready])
        await self._follow(conn, container_id, ready, published.now_live)
        failpoint("ingest.before_commit")
        return published

    async def _follow(
        self,
        conn: Connection,
        container_id: str,
        ready: Sequence[ReadyGeneration],
        now_live: Collection[UUID],
    ) -> None:
        """Follow-up work: purge older generations, compact, dedup, draw pages."""
        for one in ready:
            await self._purge(conn, container_id, one, now_live=one.staged.doc_id in now_live)
        await enqueue_if_needed(conn, container_id)
        await enqueue_dedup_pending(conn, container_id, principal=ready[0].ctx.job.principal)
        visible = [one for one in ready if one.staged.doc_id in now_live]
        jobs = [one.drawing for one in visible if one.drawing is not None]
        jobs += [job for one in visible for job in one.follow_ups]
        if jobs:
            await enqueue_many(conn, jobs)

    async def _purge(
        self, conn: Connection, container_id: str, ready: ReadyGeneration, *, now_live: bool
    ) -> None:
        doc_id, generation = ready.staged.doc_id, ready.staged.generation
        if now_live and generation <= 1:
            return
        job = ready.ctx.job
        await enqueue_purges(
            conn,
            container_id,
            below=[(doc_id, generation)] if now_live else (),
            only=() if now_live else [(doc_id, generation)],
            principal=job.principal,
            lease_seconds=self._lease_seconds,
            twice=job.attempts > 1 or not now_live or ready.replaces,
        )
