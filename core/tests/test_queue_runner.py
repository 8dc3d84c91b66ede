"""The worker's loop against a real database, and against one that goes away. F-numbers as in test_queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from latent_core.domain.errors import IngestFailed, Issue, IssueCode, TimedOut, Unavailable
from latent_core.domain.ids import JobId
from latent_core.domain.job import JobKind, JobState, JobView, NewJob
from latent_core.queue import admin, clock
from latent_core.queue.claim import claim
from latent_core.queue.context import JobContext
from latent_core.queue.enqueue import enqueue_many
from latent_core.queue.errors import Cancelled, LeaseLost
from latent_core.queue.finish import finish
from latent_core.queue.lease import Heartbeat, HeldClaim
from latent_core.queue.reaper import reap
from latent_core.queue.runner import Handler, Runner
from latent_core.queue.wakeup import Listener, Wakeup
from latent_core.registry.connection import Connection, Database, Limits

Condition = Callable[[], bool | Awaitable[bool]]


async def until(condition: Condition) -> None:
    """Wait for ``condition``, at most twenty seconds."""
    async with asyncio.timeout(20):
        while True:
            answer = condition()
            if answer if isinstance(answer, bool) else await answer:
                return
            await asyncio.sleep(0.01)


async def put(db: Database, *jobs: NewJob) -> list[JobId]:
    async with db.transaction() as conn:
        return await enqueue_many(conn, jobs or [NewJob(JobKind.INGEST, "a")])


async def view(db: Database, job_id: int) -> JobView:
    async with db.transaction() as conn:
        return await admin.get(conn, job_id)


def is_in(db: Database, job_id: int, state: JobState) -> Condition:
    async def check() -> bool:
        return (await view(db, job_id)).state is state

    return check


async def execute(db: Database, statement: str, **parameters: Any) -> None:
    async with db.transaction() as conn:
        await conn.execute(statement, parameters)


def runner_of(db: Database, handler: Handler, **options: Any) -> Runner:
    defaults: dict[str, Any] = {
        "worker_id": "w",
        "concurrency": 2,
        "lease_seconds": 30.0,
        "poll_seconds": 0.05,
    }
    return Runner(db, {JobKind.INGEST: handler}, **defaults | options)


@asynccontextmanager
async def running(
    db: Database, handler: Handler, *, stop_seconds: float = 5.0, **options: Any
) -> AsyncIterator[Runner]:
    runner = runner_of(db, handler, **options)
    task = asyncio.create_task(runner.run(stop_seconds=stop_seconds))
    try:
        yield runner
    finally:
        runner.stop()
        async with asyncio.timeout(20):
            await task


@asynccontextmanager
async def held(db: Database, *, lease_seconds: float = 30.0) -> AsyncIterator[JobContext]:
    """A claimed job without a heartbeat."""
    await put(db)
    since = clock.now()
    job = await claim(db, worker="w", lease_seconds=lease_seconds)
    assert job is not None
    yield JobContext(db, HeldClaim(job, lease_seconds=lease_seconds, since=since))


class Gate:
    """The only way to the database, which can be shut or fall silent."""

    def __init__(self, dsn: str) -> None:
        given = conninfo_to_dict(dsn)
        self._target = f"{given['host']}/.s.PGSQL.{given.get('port') or 5432}"
        self._dsn = dsn
        self._streams: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.is_open = True
        self.refused = 0

    async def __aenter__(self) -> Gate:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.dsn = make_conninfo(
            self._dsn, host="127.0.0.1", port=port, sslmode="disable", gssencmode="disable"
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        self.shut()
        await asyncio.sleep(0)

    def shut(self) -> None:
        self.is_open = False
        self._flowing.set()
        for stream in self._streams:
            stream.transport.abort()

    def silence(self) -> None:
        """Nothing passes any more, and nobody is told."""
        self._flowing.clear()

    def speak(self) -> None:
        self._flowing.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.is_open or not self._flowing.is_set():
            self.refused += 1
            writer.transport.abort()
            return
        up_reader, up_writer = await asyncio.open_unix_connection(self._target)
        self._streams |= {writer, up_writer}
        await asyncio.gather(self._pipe(reader, up_writer), self._pipe(up_reader, writer))
        self._streams -= {writer, up_writer}

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        writer.close()


@pytest.fixture
async def gate(dsn: str) -> AsyncIterator[Gate]:
    if not str(conninfo_to_dict(dsn).get("host")).startswith("/"):
        pytest.skip("the test server is not on a Unix socket")
    async with Gate(dsn) as opened:
        yield opened


# --- handlers ----------------------------------------------------------------------------------


async def test_jobs_are_run_and_finished_at_most_so_many_at_a_time(database: Database) -> None:
    ids = await put(database, *(NewJob(JobKind.INGEST, "a") for _ in range(20)))
    busy = most = 0

    async def handler(context: JobContext) -> None:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        await until(lambda: most == 3)
        busy -= 1

    async with running(database, handler, concurrency=3) as runner:
        await until(lambda: runner.tally.settled == 20)
    assert most == 3
    assert {(await view(database, i)).state for i in ids} == {JobState.DONE}


@pytest.mark.parametrize(
    ("error", "state", "code"),
    [
        (IngestFailed("bad"), JobState.FAILED, IssueCode.INGEST_FAIL),
        (Unavailable("away"), JobState.QUEUED, IssueCode.UNAVAILABLE),
        (KeyError("oops"), JobState.QUEUED, IssueCode.UNAVAILABLE),
        (ExceptionGroup("", [IngestFailed("bad")]), JobState.FAILED, IssueCode.INGEST_FAIL),
    ],
)
async def test_what_a_handler_raises_decides_what_becomes_of_the_job(
    database: Database, error: Exception, state: JobState, code: IssueCode
) -> None:
    (job_id,) = await put(database)

    async def handler(context: JobContext) -> None:
        raise error

    async with running(database, handler) as runner:
        await until(lambda: runner.tally.settled == 1)
    shown = await view(database, job_id)
    assert (shown.state, shown.cause and shown.cause.code) == (state, code)
    assert shown.cause is not None
    assert "oops" not in shown.cause.message


async def test_a_running_job_is_cancelled_at_its_next_checkpoint(database: Database) -> None:
    (job_id,) = await put(database)

    async def handler(context: JobContext) -> None:
        async with database.transaction() as conn:
            await admin.cancel(conn, job_id)
        await until(lambda: context.checkpoint())  # type: ignore[arg-type,return-value]

    async with running(database, handler, lease_seconds=0.4):
        await until(is_in(database, job_id, JobState.CANCELLED))


async def test_progress_learns_of_a_cancellation_without_waiting_for_the_heartbeat(
    database: Database,
) -> None:
    async with held(database) as context:
        async with database.transaction() as conn:
            await admin.cancel(conn, context.job.id)
        with pytest.raises(Cancelled):
            await context.progress(1, 10)


async def test_progress_is_throttled_and_the_last_one_is_always_written(
    database: Database,
) -> None:
    async with held(database) as context:
        seen = []
        for done in (1, 2, 3, 4):
            await context.progress(done, 4, f"page {done}\0")
            seen.append((await view(database, context.job.id)).progress_done)
        shown = await view(database, context.job.id)
    assert seen == [1, 1, 1, 4]
    assert shown.progress_note == "page 4\ufffd"
    assert shown.eta_seconds == 0


async def test_warnings_are_kept_up_to_a_bound_and_refused_without_the_lease(
    database: Database,
) -> None:
    async with held(database) as context:
        for n in range(103):
            await context.warn(Issue(code=IssueCode.INVALID, message=f"{n}"))
        shown = await view(database, context.job.id)
        assert [w.message for w in shown.warnings] == [f"{n}" for n in range(100)]
        await execute(database, "UPDATE jobs SET claim_id = 0")
        with pytest.raises(LeaseLost):
            await context.warn(Issue(code=IssueCode.INVALID, message="late"))
        with pytest.raises(LeaseLost):
            await context.checkpoint()


# --- leases ------------------------------------------------------------------------------------


async def test_a_job_that_runs_for_many_leases_is_never_taken_f3(database: Database) -> None:
    (job_id,) = await put(database)

    async def handler(context: JobContext) -> None:
        started = clock.now()
        while clock.now() - started < 1.0:
            await context.checkpoint()
            assert await reap(database) == []

    async with running(database, handler, lease_seconds=0.4):
        await until(is_in(database, job_id, JobState.DONE))
    assert (await view(database, job_id)).attempts == 1


async def test_a_handler_that_blocks_the_event_loop_keeps_its_lease_f6(
    database: Database, dsn: str
) -> None:
    (job_id,) = await put(database)
    sql = "SELECT lease_expires FROM jobs"

    async def handler(context: JobContext) -> None:
        leases: set[Any] = set()
        with psycopg.connect(dsn, autocommit=True) as conn:
            while len(leases) < 5:
                leases.add(conn.execute(sql).fetchone())
        await context.checkpoint()

    async with running(database, handler, lease_seconds=0.8):
        await until(is_in(database, job_id, JobState.DONE))
    assert (await view(database, job_id)).attempts == 1


async def test_a_heartbeat_passes_over_a_job_that_publishes_and_renews_the_others_f6(
    database: Database,
) -> None:
    heartbeat = Heartbeat(database.dsn, lease_seconds=0.8)
    async with (
        held(database, lease_seconds=0.8) as publishing,
        held(database, lease_seconds=0.8) as other,
    ):
        for context in (publishing, other):
            heartbeat.hold(context._claim)
        async with database.transaction() as conn:
            await finish(conn, publishing.job)
            heartbeat.start()
            started = clock.now()
            while clock.now() - started < 1.0:
                assert other.job.id not in await reap(database)
                assert publishing.job.id not in await reap(database)
        heartbeat.close()
        await other.fence()
    assert (await view(database, publishing.job.id)).state is JobState.DONE


async def test_a_claim_without_a_heartbeat_asks_before_it_goes_on(database: Database) -> None:
    async with held(database, lease_seconds=0.0) as context:
        await context.checkpoint()
        await execute(database, "UPDATE jobs SET state = 'queued'")
        with pytest.raises(LeaseLost):
            await context.checkpoint()


async def test_what_a_dead_worker_of_the_same_name_held_is_taken_back_at_the_start(
    database: Database,
) -> None:
    (job_id,) = await put(database)
    assert await claim(database, worker="w", lease_seconds=3600)

    async def handler(context: JobContext) -> None:
        assert context.job.attempts == 2

    async with running(database, handler, worker_id="w"):
        await until(is_in(database, job_id, JobState.DONE))


async def test_a_job_in_quarantine_runs_only_when_nothing_else_does(database: Database) -> None:
    ids = await put(database, *(NewJob(JobKind.INGEST, "a") for _ in range(6)))
    await execute(
        database,
        "UPDATE jobs SET lane = 'quarantine', lost_leases = 2 WHERE id = %(i)s",
        i=ids[0],
    )
    busy: set[int] = set()
    alone = []

    async def handler(context: JobContext) -> None:
        busy.add(context.job.id)
        if context.job.id == ids[0]:
            await put(database)
        await context.fence()
        if context.job.id == ids[0]:
            alone.append(set(busy))
        busy.discard(context.job.id)

    async with running(database, handler, concurrency=4) as runner:
        await until(lambda: runner.tally.settled == 7)
    assert alone == [{ids[0]}]


# --- stopping ----------------------------------------------------------------------------------


async def test_stopping_lets_jobs_end_and_releases_the_rest_f8(database: Database) -> None:
    quick, slow, unclaimed = await put(
        database, *(NewJob(JobKind.INGEST, "a", doc_key=f"d{n}") for n in range(3))
    )
    started: set[int] = set()
    go_on = asyncio.Event()

    async def handler(context: JobContext) -> None:
        started.add(context.job.id)
        await go_on.wait()
        if context.job.id == slow:
            await asyncio.Event().wait()

    async with running(database, handler, stop_seconds=0.2) as runner:
        await until(lambda: started == {quick, slow})
        runner.stop()
        go_on.set()
    assert (await view(database, quick)).state is JobState.DONE
    for job_id in (slow, unclaimed):
        shown = await view(database, job_id)
        assert (shown.state, shown.attempts) == (JobState.QUEUED, 0)
    again = {(await claim(database, worker="v", lease_seconds=9)).id for _ in range(2)}  # type: ignore[union-attr]
    assert again == {slow, unclaimed}


async def test_a_cancelled_worker_releases_what_it_holds(database: Database) -> None:
    (job_id,) = await put(database)
    started = asyncio.Event()

    async def handler(context: JobContext) -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(runner_of(database, handler).run())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await view(database, job_id)).state is JobState.QUEUED


# --- a database that goes away -----------------------------------------------------------------


@asynccontextmanager
async def through(gate: Gate) -> AsyncIterator[Database]:
    limits = Limits(wait=0.3, statement=5, lock=5)
    async with await Database.open(gate.dsn, limits=limits, max_size=4) as db:
        yield db


async def test_a_finish_waits_for_a_database_that_comes_back_within_the_lease_f7(
    database: Database, gate: Gate
) -> None:
    (job_id,) = await put(database)
    tries = 0

    async def handler(context: JobContext) -> None:
        async def publish(conn: Connection) -> None:
            await finish(conn, context.job)
            await enqueue_many(conn, [NewJob(JobKind.PURGE, "effect")])

        gate.shut()
        asyncio.get_running_loop().call_later(0.5, setattr, gate, "is_open", True)
        await context.checkpoint()  # the heartbeat is fresh: no question is asked
        await context.progress(1, 1)  # worth no failure
        await context.transact(publish)
        nonlocal tries
        tries += 1

    async with through(gate) as db, running(db, handler):
        await until(is_in(database, job_id, JobState.DONE))
    assert tries == 1
    shown = await view(database, job_id)
    assert shown.attempts == 1
    assert [c async for c in effects(database)] == ["effect"]


async def effects(db: Database) -> AsyncIterator[str]:
    async with db.transaction() as conn:
        async for row in await conn.execute("SELECT container_id FROM jobs WHERE kind = 'purge'"):
            yield row["container_id"]


async def test_a_database_away_for_longer_than_the_lease_costs_the_claim_not_the_job_f7(
    database: Database, gate: Gate
) -> None:
    (job_id,) = await put(database)
    lost = asyncio.Event()

    async def handler(context: JobContext) -> None:
        if context.job.attempts == 1:
            gate.shut()
            try:
                await context.transact(lambda conn: finish(conn, context.job))
            except LeaseLost:
                gate.is_open = True
                lost.set()
                raise

    async with through(gate) as db, running(db, handler, lease_seconds=1.0):
        await lost.wait()
        await until(is_in(database, job_id, JobState.DONE))
    assert (await view(database, job_id)).attempts == 2


async def test_without_a_database_a_checkpoint_past_the_lease_says_the_lease_is_lost(
    gate: Gate,
) -> None:
    async with through(gate) as db, held(db, lease_seconds=0.0) as context:
        gate.shut()
        with pytest.raises(LeaseLost):
            await context.checkpoint()


async def test_a_worker_outlives_its_database_f7(database: Database, gate: Gate) -> None:
    async def handler(context: JobContext) -> None:
        await context.checkpoint()

    async with through(gate) as db, running(db, handler) as runner:
        gate.shut()
        await put(database)
        gate.is_open = True
        await until(lambda: runner.tally.settled == 1)


# --- waking ------------------------------------------------------------------------------------


@asynccontextmanager
async def listening(db: Database) -> AsyncIterator[asyncio.Event]:
    """Set whenever the listener calls."""
    called = asyncio.Event()
    task = asyncio.create_task(
        Listener(db, called.set, ping_seconds=0.1, deaf_seconds=0.3).run(), name="listener"
    )
    try:
        yield called
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def hears(called: asyncio.Event, wakeup: Wakeup | None = None) -> None:
    called.clear()
    if wakeup is not None:
        wakeup.wake()
    async with asyncio.timeout(10):
        await called.wait()


async def test_waking_is_heard_and_many_calls_are_few_notifications_f15_f16(
    database: Database,
) -> None:
    async with database.dedicated(name="ear") as ear, Wakeup(database) as wakeup:
        await ear.execute("LISTEN latent_jobs")
        for _ in range(1000):
            wakeup.wake()
            await asyncio.sleep(0)
        await hears_once(ear)
        heard = [note async for note in ear.notifies(timeout=0.2)]
    assert len(heard) <= 20


async def hears_once(conn: Connection) -> None:
    heard = [note async for note in conn.notifies(timeout=10, stop_after=1)]
    assert heard


async def test_a_listener_that_was_cut_off_listens_again_f9(database: Database) -> None:
    async with listening(database) as called, Wakeup(database) as wakeup:
        await hears(called)  # its own start
        await hears(called, wakeup)
        await execute(
            database,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name IN ('latent listener', 'latent wakeup')",
        )
        await hears(called)  # it starts again
        await hears(called, wakeup)


async def test_a_listener_notices_that_its_connection_went_deaf_f9(gate: Gate) -> None:
    async with through(gate) as db, listening(db) as called:
        await hears(called)
        gate.silence()
        called.clear()
        await until(lambda: gate.refused > 0)  # it comes back although nobody hung up
        gate.speak()
        await until(called.is_set)


async def test_jobs_are_found_by_polling_when_nobody_wakes(database: Database) -> None:
    async def handler(context: JobContext) -> None:
        await context.checkpoint()

    async with running(database, handler) as runner:
        for n in range(3):
            await put(database)
            await until(lambda n=n: runner.tally.settled == n + 1)  # type: ignore[misc]


async def test_a_timed_out_statement_is_the_databases_matter_and_is_tried_again(
    database: Database,
) -> None:
    tries = 0
    async with held(database) as context:

        async def write(conn: Connection) -> None:
            nonlocal tries
            tries += 1
            if tries < 3:
                raise TimedOut("busy")
            await finish(conn, context.job)

        await context.transact(write)
    assert tries == 3
