"""The worker's loop: claim, run and settle jobs, reap and delete old ones, count attempts in metrics."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import uniform
from typing import Final, NamedTuple

from latent_core.db.connection import Database
from latent_core.domain.errors import IssueCode, LatentError, Unavailable
from latent_core.domain.job import ClaimedJob, JobKind, Outcome
from latent_core.queue import clock
from latent_core.queue.claim import claim
from latent_core.queue.context import JobContext, until_lost
from latent_core.queue.errors import JobCancelled, LeaseLost
from latent_core.queue.finish import FINISH, end_cancelled, fenced, stored_list
from latent_core.queue.lease import BEATS_PER_LEASE, Heartbeat, HeldClaim
from latent_core.queue.origin import from_job
from latent_core.queue.reaper import disown, forget, reap
from latent_core.queue.requeue import release, retry_or_fail
from latent_core.queue.wakeup import Listener
from latent_core.runtime.tasks import ended
from latent_core.telemetry.metrics import Metrics, bound
from latent_core.telemetry.outage import OutageLog
from latent_core.telemetry.tracing import span

logger = logging.getLogger(__name__)

Handler = Callable[[JobContext], Awaitable[None]]
"""Does the job and finishes it in its last transaction; if it only returns, the runner finishes the job."""

REPORT_SECONDS: Final = 30.0
RETENTION_SECONDS: Final = 120.0
RELEASE_SECONDS: Final = 5.0


class AttemptEnd(NamedTuple):
    job: ClaimedJob
    outcome: Outcome
    code: IssueCode | None
    seconds: float


class _Result(NamedTuple):
    settle: Callable[[], Awaitable[Outcome]]
    """Records the end of the attempt, if the handler did not, and returns its outcome."""
    code: IssueCode | None = None


@dataclass(slots=True)
class WorkerStats:
    """Counts since the worker started."""

    claimed: int = 0
    settled: int = 0
    lost: int = 0


class Runner:
    """Runs jobs of the kinds that have a handler, at most ``concurrency`` at a time.

    ``worker_id`` is unique among live workers: at start-up, claims of a dead worker with the same id are taken back.
    """

    def __init__(
        self,
        db: Database,
        handlers: Mapping[JobKind, Handler],
        *,
        worker_id: str,
        concurrency: int,
        lease_seconds: float,
        poll_seconds: float,
        on_end: Callable[[AttemptEnd], None] = lambda _: None,
        one_at_a_time: Collection[JobKind] = (),
    ) -> None:
        """``on_end`` is called after every attempt. This runner runs one job at a time of each kind in
        ``one_at_a_time``; more jobs of that kind stay in the queue for other processes."""
        self._one_at_a_time = frozenset(one_at_a_time)
        self._running: Counter[JobKind] = Counter()
        self._on_end = on_end
        self._db = db
        self._handlers = dict(handlers)
        self._worker_id = worker_id
        self._concurrency = concurrency
        self._lease_seconds = lease_seconds
        self._poll_seconds = poll_seconds
        self._heartbeat = Heartbeat(db.dsn, lease_seconds=lease_seconds)
        self._claims = OutageLog(logger, failed="claim_failed", recovered="claim_recovered")
        self._stir = asyncio.Event()
        self._stopping = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._alive = False
        self.stats = WorkerStats()

    async def run(self, *, stop_seconds: float = 20.0) -> None:
        """Work until ``stop`` is called, or this is cancelled.

        Then claiming stops, running jobs have ``stop_seconds`` to end, and the rest is released.
        """
        self._heartbeat.start()
        maintenance = [asyncio.create_task(loop) for loop in self._maintenance()]
        try:
            await self._claim_until_stopped()
            await self._drain(stop_seconds)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(ended(*maintenance), *self._tasks, return_exceptions=True)
            await asyncio.to_thread(self._heartbeat.close)

    def stop(self) -> None:
        """Ask the worker to end. Call it in the event loop's thread."""
        self._stopping.set()
        self._stir.set()

    async def _claim_until_stopped(self) -> None:
        while not self._stopping.is_set():
            self._stir.clear()
            try:
                await self._take_back()
                await self._fill()
                self._claims.succeeded()
            except LatentError as exc:
                self._claims.failed(str(exc))
            except Exception:
                logger.exception("claim_failed")
            with suppress(TimeoutError):
                # Jitter, so that idle workers do not all claim at once.
                async with asyncio.timeout(self._poll_seconds * uniform(0.8, 1.2)):
                    await self._stir.wait()

    async def _take_back(self) -> None:
        """Once, before the first claim: take back the claims of a dead worker with our id."""
        if not self._alive:
            await disown(self._db, self._worker_id)
            await reap(self._db)
            self._alive = True

    async def _fill(self) -> None:
        """Claim until all slots are taken or no job is left."""
        while len(self._tasks) < self._concurrency and not self._stopping.is_set():
            if not await self._claim():
                return

    async def _claim(self) -> bool:
        since = clock.now()
        job = await claim(
            self._db,
            worker=self._worker_id,
            lease_seconds=self._lease_seconds,
            kinds=self._claimable(),
        )
        if job is not None:
            self._attend(HeldClaim(job, lease_seconds=self._lease_seconds, since=since))
        return job is not None

    def _claimable(self) -> set[JobKind]:
        busy = {kind for kind in self._one_at_a_time if self._running[kind]}
        return self._handlers.keys() - busy

    def _attend(self, held: HeldClaim) -> None:
        self.stats.claimed += 1
        self._running[held.job.kind] += 1
        self._heartbeat.hold(held)
        task = asyncio.create_task(self._run_job(held), name=f"job {held.job.id}")
        self._tasks.add(task)
        task.add_done_callback(partial(self._leave, held))

    def _leave(self, held: HeldClaim, task: asyncio.Task[None]) -> None:
        self._heartbeat.drop(held)
        self._tasks.discard(task)
        self._running[held.job.kind] -= 1
        self._stir.set()

    async def _run_job(self, held: HeldClaim) -> None:
        job, begun = held.job, clock.now()
        with (
            bound(job_id=job.id, job_kind=job.kind.value),
            from_job(job),
            span(
                f"job {job.kind.value}",
                job_id=job.id,
                container_id=job.container_id,
                attempt=job.attempts,
            ) as traced,
        ):
            outcome, code = await self._settled(held)
            seconds = clock.now() - begun
            if code is not None:
                traced.failed(code.value)
            logger.info(
                "job_ended",
                extra={
                    "container_id": job.container_id,
                    "attempt": job.attempts,
                    "outcome": outcome,
                    "latency_ms": round(seconds * 1000, 1),
                },
            )
        self._on_end(AttemptEnd(job, outcome, code, seconds))

    async def _settled(self, held: HeldClaim) -> tuple[Outcome, IssueCode | None]:
        """Run the job and record its end."""
        try:
            result = await self._outcome(held)
            outcome = await until_lost(held, result.settle)
        except LeaseLost as exc:
            self.stats.lost += 1
            logger.warning("job_dropped", extra={"cause": str(exc)})
        except asyncio.CancelledError:
            await self._release(held.job)
            raise
        except Exception:
            logger.exception("job_settle_failed", extra={"job_id": held.job.id})
        else:
            self.stats.settled += 1
            return outcome, result.code
        return "lost", None

    async def _outcome(self, held: HeldClaim) -> _Result:
        """Run the handler; returns what is left to record. ``LeaseLost``."""
        job = held.job
        try:
            settled = await self._handle(held)
        except LeaseLost:
            held.lose()
            raise
        except JobCancelled:
            return _Result(partial(self._end_cancelled, job))
        except LatentError as exc:
            logger.warning(
                "job_attempt_failed",
                extra={"job_id": job.id, "attempt": job.attempts, "cause": str(exc)},
            )
            return _Result(partial(retry_or_fail, self._db, job, exc), exc.code)
        except Exception as exc:
            logger.exception(
                "job_attempt_failed", extra={"job_id": job.id, "attempt": job.attempts}
            )
            return _Result(partial(retry_or_fail, self._db, job, exc), Unavailable.code)
        return _Result(_done if settled else partial(self._finish_if_held, job))

    async def _handle(self, held: HeldClaim) -> bool:
        """Run the handler; returns whether it finished the job itself."""
        ctx = JobContext(self._db, held)
        try:
            await self._handlers[held.job.kind](ctx)
        except ExceptionGroup as group:
            raise _first(group) from group
        return ctx.settled

    async def _finish_if_held(self, job: ClaimedJob) -> Outcome:
        """A handler may have finished the job itself; then this matches no row."""
        async with self._db.single() as conn:
            await fenced(conn, FINISH, job, warnings=stored_list(()), result=None)
        return "done"

    async def _end_cancelled(self, job: ClaimedJob) -> Outcome:
        async with self._db.transaction() as conn:
            await end_cancelled(conn, job)
        return "cancelled"

    async def _release(self, job: ClaimedJob) -> None:
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await release(self._db, job)
        except (LeaseLost, LatentError, TimeoutError) as exc:
            logger.warning("job_release_failed", extra={"job_id": job.id, "cause": str(exc)})

    async def _drain(self, seconds: float) -> None:
        if self._tasks:
            logger.info(
                "worker_stopping", extra={"running_jobs": len(self._tasks), "seconds": seconds}
            )
            await asyncio.wait(self._tasks, timeout=seconds)

    def _maintenance(self) -> list[Coroutine[None, None, None]]:
        reap_seconds = max(self._lease_seconds / BEATS_PER_LEASE, self._poll_seconds)
        return [
            Listener(self._db, self._stir.set).run(),
            _every(reap_seconds, self._reap),
            _every(RETENTION_SECONDS, self._forget),
            _every(REPORT_SECONDS, self._report),
        ]

    async def _reap(self) -> None:
        # After a freeze the heartbeat goes first: our own expired leases can often still be renewed.
        if not self._heartbeat.behind and await reap(self._db):
            self._stir.set()

    async def _forget(self) -> None:
        await forget(self._db)

    async def _report(self) -> None:
        logger.info(
            "worker_heartbeat",
            extra={
                "worker": self._worker_id,
                "running": len(self._tasks),
                "claimed": self.stats.claimed,
                "settled": self.stats.settled,
                "lost": self.stats.lost,
            },
        )


async def _done() -> Outcome:
    """The handler finished the job itself: there is nothing left to record."""
    return "done"


async def _every(seconds: float, task: Callable[[], Awaitable[None]]) -> None:
    """Run ``task`` now and about every ``seconds``; log its errors."""
    outages = OutageLog(
        logger, failed="queue_maintenance_failed", recovered="queue_maintenance_recovered"
    )
    while True:
        try:
            await task()
            outages.succeeded()
        except LatentError as exc:
            outages.failed(str(exc))
        except Exception:
            logger.exception("queue_maintenance_failed")
        await asyncio.sleep(seconds * uniform(0.8, 1.2))


def _first(group: ExceptionGroup[Exception]) -> Exception:
    """The first error of a task group, which cancelled the other tasks."""
    error: Exception = group
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def counting(metrics: Metrics) -> Callable[[AttemptEnd], None]:
    """An ``on_end`` that counts each attempt, its duration and its error."""

    def on_end(ended: AttemptEnd) -> None:
        kind = ended.job.kind.value
        metrics.jobs.labels(kind, ended.outcome).inc()
        metrics.job_seconds.labels(kind).observe(ended.seconds)
        if ended.code is not None:
            metrics.failed("job", ended.code)

    return on_end
