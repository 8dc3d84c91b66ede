"""The interface of a job handler to its job, and the possible outcomes of an attempt."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from random import random
from typing import Any, Final, TypeVar

from latent_core.db.connection import Connection, Database
from latent_core.domain.errors import Issue, LatentError, StoreFull, TimedOut, Unavailable
from latent_core.domain.job import ClaimedJob
from latent_core.queue import clock
from latent_core.queue.finish import clean, fenced, lease_lost, stored
from latent_core.queue.lease import BEAT, HeldClaim, beat_parameters

logger = logging.getLogger(__name__)

T = TypeVar("T")

PROGRESS_SECONDS: Final = 0.5
MAX_WARNINGS: Final = 100
FIRST_PAUSE_SECONDS: Final = 0.05
LONGEST_PAUSE_SECONDS: Final = 2.0

PROGRESS: Final = """
UPDATE jobs SET progress_done = %(done)s, progress_total = %(total)s, progress_note = %(note)s
WHERE id = %(id)s AND claim_id = %(claim_id)s AND state = 'running'
RETURNING cancel_requested
"""

LAST_PROGRESS: Final = """
UPDATE jobs SET
    progress_done = %(done)s, progress_total = %(done)s, progress_note = NULL,
    lease_expires = clock_timestamp() + make_interval(secs => %(lease_seconds)s)
WHERE id = %(id)s AND claim_id = %(claim_id)s AND state = 'running'
RETURNING true AS running, true AS renewed, cancel_requested
"""

WARN: Final = """
UPDATE jobs SET
    warnings = CASE WHEN jsonb_array_length(warnings) < %(max_warnings)s THEN warnings || %(warning)s ELSE warnings END
WHERE id = %(id)s AND claim_id = %(claim_id)s AND state = 'running'
"""


class JobContext:
    """A claimed job as its handler sees it.

    Call ``checkpoint`` before every write outside the database and between batches. A handler ends with the
    transaction that makes its effect visible, with ``finish`` (or ``requeue_with``) as the first statement; use
    ``transact``. Do not call these methods inside that transaction: it holds the job's row.
    """

    def __init__(self, db: Database, claim: HeldClaim, *, despite_cancel: bool = False) -> None:
        self._db = db
        self._claim = claim
        self._despite_cancel = despite_cancel
        self._progress_at = float("-inf")
        self.settled = False
        """Whether the handler already recorded the end of its job."""

    @property
    def job(self) -> ClaimedJob:
        return self._claim.job

    def despite_cancel(self) -> JobContext:
        """The same job for a short step that completes what is done: a requested cancellation does not interrupt it."""
        return JobContext(self._db, self._claim, despite_cancel=True)

    def _raise_if_ended(self) -> None:
        if self._despite_cancel:
            self._claim.raise_if_lost()
        else:
            self._claim.raise_if_ended()

    async def checkpoint(self) -> None:
        """Raise ``LeaseLost`` or ``JobCancelled`` if the job is no longer ours.

        Costs nothing while the heartbeat is fresh. A stale one means that this process was frozen or the database
        is unreachable; then the database is asked.
        """
        await asyncio.sleep(0)
        self._raise_if_ended()
        if self._claim.stale:
            try:
                await self.fence()
            except (Unavailable, TimedOut) as exc:
                self._claim.lose()
                raise lease_lost(self.job) from exc

    async def fence_patiently(self, done: int | None = None) -> None:
        """``fence``, retried while the database is unreachable, so that finished work is not lost."""
        await until_lost(self._claim, partial(self.fence, done))

    async def fence(self, done: int | None = None) -> None:
        """Renew the lease. Raises ``LeaseLost`` or ``JobCancelled`` if the job is no longer ours.

        ``done`` also records progress: all of that many steps are done.
        """
        checked_at = clock.now()
        row = await (self._beat() if done is None else self._last_progress(done))
        if row is None:
            raise self._lost()
        self._claim.learn(row, checked_at)
        self._raise_if_ended()

    async def _beat(self) -> dict[str, Any] | None:
        parameters = beat_parameters([self._claim], self._claim.lease_seconds)
        async with self._db.single() as conn:
            return await (await conn.execute(BEAT, parameters)).fetchone()

    async def _last_progress(self, done: int) -> dict[str, Any] | None:
        parameters = {
            "id": self.job.id,
            "claim_id": self.job.claim_id,
            "done": done,
            "lease_seconds": self._claim.lease_seconds,
        }
        async with self._db.single() as conn:
            return await (await conn.execute(LAST_PROGRESS, parameters)).fetchone()

    async def progress(self, done: int, total: int | None, note: str | None = None) -> None:
        """Report progress; written at most twice a second, and at the end. Also a ``checkpoint``."""
        await self.checkpoint()
        if clock.now() - self._progress_at < PROGRESS_SECONDS and done != total:
            return
        self._progress_at = clock.now()
        try:
            await self._write_progress(done, total, note)
        except (Unavailable, TimedOut) as exc:
            # Not worth a failure; the lease decides whether the job may go on.
            logger.info(
                "job_progress_not_written", extra={"job_id": self.job.id, "cause": str(exc)}
            )

    async def _write_progress(self, done: int, total: int | None, note: str | None) -> None:
        parameters = {
            "id": self.job.id,
            "claim_id": self.job.claim_id,
            "done": done,
            "total": total,
            "note": clean(note),
        }
        async with self._db.single() as conn:
            row = await (await conn.execute(PROGRESS, parameters)).fetchone()
        if row is None:
            raise self._lost()
        if row["cancel_requested"]:
            self._claim.cancel()
        self._raise_if_ended()

    async def warn(self, issue: Issue) -> None:
        """Add a warning to the job, at most a hundred. ``LeaseLost``."""
        async with self._db.single() as conn:
            held = await fenced(
                conn, WARN, self.job, warning=stored(issue), max_warnings=MAX_WARNINGS
            )
        if not held:
            raise self._lost()

    async def transact(
        self, write: Callable[[Connection], Awaitable[T]], *, last: bool = False
    ) -> T:
        """Run ``write`` in one transaction, retried while the database is unreachable, until the lease is lost.

        The ``last`` one finishes the job. ``StoreFull`` is raised at once: the job pauses with that cause and others
        may run. ``write`` must be fenced by ``finish`` or ``requeue_with``: if a commit succeeded and only its
        answer was lost, the second try raises ``LeaseLost`` and changes nothing.
        """
        self._claim.raise_if_lost()

        async def attempt() -> T:
            async with self._db.transaction() as conn:
                return await write(conn)

        answer = await until_lost(self._claim, attempt, but=StoreFull)
        self.settled = last
        return answer

    def _lost(self) -> Exception:
        self._claim.lose()
        return lease_lost(self.job)


async def until_lost(
    claim: HeldClaim,
    step: Callable[[], Awaitable[T]],
    *,
    but: type[LatentError] | tuple[()] = (),
) -> T:
    """Run the fenced ``step``, retried while the database is unreachable; ``LeaseLost`` when that outlasts the lease.

    Errors of the type ``but`` are raised at once.
    """
    pause, waits = FIRST_PAUSE_SECONDS, False
    while True:
        try:
            return await step()
        except but:
            raise
        except (Unavailable, TimedOut) as exc:
            if claim.lost or claim.stale:
                claim.lose()
                raise lease_lost(claim.job) from exc
            if not waits:
                waits = True
                logger.warning(
                    "job_waits_for_database", extra={"job_id": claim.job.id, "cause": str(exc)}
                )
        await asyncio.sleep(random() * pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
