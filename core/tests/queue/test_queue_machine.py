"""The whole queue against a dict: whatever is done in whatever order, table and model agree."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from latent_core.db.connection import Database
from latent_core.domain.errors import Conflict, IngestFailed, UpstreamError, UpstreamOverload
from latent_core.domain.job import ClaimedJob, JobKind, NewJob
from latent_core.queue import admin, clock, reaper
from latent_core.queue.context import JobContext
from latent_core.queue.errors import JobCancelled, LeaseLost
from latent_core.queue.lease import HeldClaim
from latent_core.queue.reaper import reap
from latent_core.queue.requeue import release, requeue_with, retry_or_fail
from tests.support.queue import expire, finished, let_delays_pass, put, sql, take

T = TypeVar("T")

MAX_ATTEMPTS = 5
FENCES = ("fence", "last fence")
DEEDS = ("finish", "fail", "retry", "cursor", "release", "progress", "pause", "pause", *FENCES)
HEALTH = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]

ROWS = """
SELECT id, state, attempts, paused_since IS NOT NULL AS paused, claim_id AS claim, cancel_requested, payload->'v' AS version
FROM jobs ORDER BY id
"""
A_DAY_PASSES = "UPDATE jobs SET paused_since = paused_since - interval '25 hours'"


@dataclass
class World:
    """A database and the loop it lives in."""

    runner: asyncio.Runner
    db: Database

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def sql(self, statement: str) -> list[dict[str, Any]]:
        return self.run(sql(self.db, statement))


@pytest.fixture
def world(dsn: str) -> Iterator[World]:
    with asyncio.Runner() as runner:
        db = runner.run(Database.open(dsn, name="model"))
        yield World(runner, db)
        runner.run(db.close())


@dataclass
class KnownJob:
    """What the model knows of a job."""

    id: int
    container: str
    doc_key: str | None
    dedupe_key: str | None
    priority: int
    version: int
    state: str = "queued"
    attempts: int = 0
    paused: bool = False
    claim: int | None = None
    cancel_requested: bool = False
    delayed: bool = False
    expired: bool = False
    in_line: bool = True
    """Whether it never left the line it was put into, so that its place is known."""
    paused_too_long: bool = False
    """Whether its first pause was more than a day ago …"""
    claimed_late: bool = False
    """… when it was claimed."""

    def row(self) -> dict[str, Any]:
        names = ("id", "state", "attempts", "paused", "claim", "cancel_requested", "version")
        return {name: getattr(self, name) for name in names}


class Queue(RuleBasedStateMachine):
    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.jobs: dict[int, KnownJob] = {}
        self.claims: list[ClaimedJob] = []
        self.version = 0
        world.sql("TRUNCATE jobs CASCADE")

    # --- the model's own questions

    def queued(self) -> list[KnownJob]:
        return [job for job in self.jobs.values() if job.state == "queued"]

    def twin(self, dedupe_key: str | None) -> KnownJob | None:
        same = [j for j in self.queued() if dedupe_key is not None and j.dedupe_key == dedupe_key]
        return same[0] if same else None

    def claimable(self) -> list[KnownJob]:
        busy = {job.doc_key for job in self.jobs.values() if job.state == "running"} - {None}
        return [job for job in self.queued() if not job.delayed and job.doc_key not in busy]

    def holder(self, held: ClaimedJob) -> KnownJob | None:
        job = self.jobs[held.id]
        return job if job.state == "running" and job.claim == held.claim_id else None

    def requeue_later(self, job: KnownJob, **changes: Any) -> None:
        """Back into the queue, unless its end was asked for or a newer job does its work."""
        job.expired = False
        job.in_line = False
        if job.cancel_requested or self.twin(job.dedupe_key):
            job.state = "cancelled"
            return
        job.state = "queued"
        for name, value in changes.items():
            setattr(job, name, value)

    # --- what callers do

    @rule(
        job_fields=st.lists(
            st.tuples(
                st.sampled_from("abc"),
                st.sampled_from([None, "x", "y"]),
                st.booleans(),
                st.sampled_from([-10, 0, 0, 100]),
                st.sampled_from([False, False, True]),
            ),
            min_size=1,
            max_size=6,
        )
    )
    def submit(self, job_fields: list[tuple[str, str | None, bool, int, bool]]) -> None:
        new = [self.new_job(*fields) for fields in job_fields]
        ids = self.world.run(put(self.world.db, *new))
        last: dict[str | None, int] = {
            job.dedupe_key: n for n, job in enumerate(new) if job.dedupe_key is not None
        }
        assert all(ids[n] == ids[last.get(job.dedupe_key, n)] for n, job in enumerate(new))
        for n in sorted({last.get(job.dedupe_key, n) for n, job in enumerate(new)}):
            self.note(ids[n], new[n])

    def new_job(
        self, container: str, key: str | None, dedupe: bool, priority: int, delayed: bool
    ) -> NewJob:
        self.version += 1
        return NewJob(
            JobKind.INGEST,
            container,
            doc_key=key and f"{container}/{key}",
            dedupe_key=f"{container}/{key}" if dedupe else None,
            payload={"v": self.version},
            priority=priority,
            delay_seconds=3600.0 if delayed else 0.0,
            max_attempts=MAX_ATTEMPTS,
        )

    def note(self, job_id: int, new: NewJob) -> None:
        delayed = new.delay_seconds > 0
        old = self.twin(new.dedupe_key)
        known = KnownJob(job_id, new.container_id, new.doc_key, new.dedupe_key, new.priority, 0)
        if old is None:
            known.delayed = delayed
            known.in_line = not delayed
            assert job_id not in self.jobs
        else:
            assert job_id == old.id
            known = replace(old, attempts=0, paused=False, priority=max(old.priority, new.priority))
            known.delayed = old.delayed and delayed
            known.in_line = old.in_line and new.priority <= old.priority
        self.jobs[job_id] = replace(known, version=new.payload["v"])

    @rule()
    def claim(self) -> None:
        candidates = self.claimable()
        held = self.world.run(take(self.world.db))
        if held is None:
            assert candidates == []
            return
        job = self.jobs[held.id]
        assert job in candidates
        assert held.claim_id > max((c.claim_id for c in self.claims), default=0)
        self.check_place(job, candidates)
        job.claimed_late = job.paused and job.paused_too_long
        job.state, job.claim, job.attempts = "running", held.claim_id, job.attempts + 1
        job.in_line = False
        assert (held.attempts, held.payload) == (job.attempts, {"v": job.version})
        self.claims.append(held)

    def check_place(self, taken: KnownJob, candidates: list[KnownJob]) -> None:
        """Nothing more urgent was passed over, nor an older job of the same container."""
        for other in candidates:
            if other.in_line and other.doc_key is None and other is not taken:
                assert other.priority <= taken.priority
                same = (other.container, other.priority) == (taken.container, taken.priority)
                if same and taken.in_line:
                    assert other.id > taken.id

    # --- what a worker does with a claim, held or lost

    @precondition(lambda self: self.claims)
    @rule(
        data=st.data(),
        deed=st.sampled_from(DEEDS),
    )
    def act(self, data: st.DataObject, deed: str) -> None:
        held = data.draw(st.sampled_from(self.claims[-6:]))
        job = self.holder(held)
        stopped = job is not None and job.cancel_requested and deed in (*FENCES, "progress")
        try:
            self.world.run(self.do(deed, held))
        except LeaseLost:
            assert job is None
        except JobCancelled:
            assert stopped
            assert job is not None
            job.expired = job.expired and deed not in FENCES
        else:
            assert job is not None
            assert not stopped
            self.note_deed(deed, job)

    async def do(self, deed: str, held: ClaimedJob) -> None:
        db = self.world.db
        context = JobContext(db, HeldClaim(held, lease_seconds=3600, since=clock.now()))
        match deed:
            case "finish":
                await finished(db, held)
            case "fail":
                await retry_or_fail(db, held, IngestFailed("bad"))
            case "retry":
                await retry_or_fail(db, held, UpstreamError("500", retry_after=3600))
            case "pause":
                await retry_or_fail(db, held, UpstreamOverload("503", retry_after=3600))
            case "cursor":
                async with db.transaction() as conn:
                    await requeue_with(conn, held, {"v": -held.claim_id})
            case "release":
                await release(db, held)
            case "fence":
                await context.fence()
            case "last fence":
                await context.fence(2)
            case _:
                await context.progress(1, 2)

    def note_deed(self, deed: str, job: KnownJob) -> None:
        match deed:
            case "finish":
                job.state = "done"
            case "pause" if job.claimed_late:
                job.state = "failed"
            case "pause":
                late = job.paused and job.paused_too_long
                again = {"paused": True, "paused_too_long": late}
                self.requeue_later(job, attempts=job.attempts - 1, delayed=True, **again)
            case "fail":
                job.state = "failed"
            case "retry" if job.attempts >= MAX_ATTEMPTS:
                job.state = "failed"
            case "retry":
                self.requeue_later(job, delayed=True)
            case "cursor":
                self.requeue_later(job, version=-(job.claim or 0), attempts=0, paused=False)
            case "release":
                self.requeue_later(job, attempts=job.attempts - 1)
            case "fence" | "last fence":
                job.expired = False

    # --- what time and people do

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        job = self.holder(data.draw(st.sampled_from(self.claims[-6:])))
        if job is not None:
            self.world.run(expire(self.world.db, job.id))
            job.expired = True

    @rule()
    def let_delays_pass(self) -> None:
        self.world.run(let_delays_pass(self.world.db))
        for job in self.queued():
            job.delayed = False

    @rule()
    def let_a_day_pass(self) -> None:
        self.world.sql(A_DAY_PASSES)
        for job in self.jobs.values():
            job.paused_too_long = True

    @rule()
    def reap(self) -> None:
        expired = [job for job in self.jobs.values() if job.state == "running" and job.expired]
        assert self.world.run(reap(self.world.db)) == [job.id for job in expired]
        for job in expired:
            if job.attempts >= MAX_ATTEMPTS:
                job.state, job.expired = "failed", False
            else:
                self.requeue_later(job, delayed=job.attempts > 1)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), action=st.sampled_from([admin.cancel, admin.requeue]))
    def steer(self, data: st.DataObject, action: Any) -> None:
        job = self.jobs[data.draw(st.sampled_from(sorted(self.jobs)))]
        refused = job.state in (
            ("done", "failed") if action is admin.cancel else ("done", "queued", "running")
        )
        refused |= action is admin.requeue and self.twin(job.dedupe_key) is not None
        try:
            self.world.run(self.administer(action, job.id))
        except Conflict:
            assert refused
            return
        assert not refused
        if action is admin.requeue:
            job.state, job.attempts, job.paused, job.cancel_requested = "queued", 0, False, False
            job.delayed = job.in_line = False
        elif job.state != "cancelled":
            job.cancel_requested = True
            job.state = "cancelled" if job.state == "queued" else job.state

    async def administer(self, action: Any, job_id: int) -> None:
        async with self.world.db.transaction() as conn:
            await action(conn, job_id)

    # --- what always holds

    @invariant()
    def table_and_model_agree(self) -> None:
        rows = self.world.sql(ROWS)
        assert rows == [self.jobs[job_id].row() for job_id in sorted(self.jobs)]

    @invariant()
    def one_job_runs_for_each_key(self) -> None:
        running = Counter(j.doc_key for j in self.jobs.values() if j.state == "running")
        assert all(n == 1 for key, n in running.items() if key is not None)

    @invariant()
    def one_job_is_queued_for_each_work(self) -> None:
        queued = Counter(job.dedupe_key for job in self.queued())
        assert all(n == 1 for key, n in queued.items() if key is not None)


def test_the_queue_behaves_as_its_model(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaper, "backoff_seconds", lambda _: 3600.0)
    run_state_machine_as_test(
        lambda: Queue(world),  # type: ignore[arg-type]  # a factory is documented to do
        settings=settings(
            max_examples=25, stateful_step_count=40, deadline=None, suppress_health_check=HEALTH
        ),
    )


@settings(max_examples=15, deadline=None, suppress_health_check=HEALTH)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from("abcd"), st.integers(1, 30)) | st.integers(1, 15), max_size=12
    )
)
def test_a_job_waits_for_no_more_than_one_job_of_each_other_container(
    world: World, steps: list[tuple[str, int] | int]
) -> None:
    """When its container has nothing else queued; the others may have queued thousands before it."""
    world.sql("TRUNCATE jobs CASCADE")
    queued: Counter[str] = Counter()
    passed_by: dict[int, Counter[str]] = {}

    async def submit(container: str, n: int) -> None:
        first, *_ = await put(world.db, *(NewJob(JobKind.INGEST, container) for _ in range(n)))
        if not queued[container]:
            passed_by[first] = Counter()
        queued[container] += n

    async def take_one() -> bool:
        held = await take(world.db)
        if held is None:
            return False
        queued[held.container_id] -= 1
        overtaken = passed_by.pop(held.id, Counter())
        assert all(n <= 1 for n in overtaken.values()), overtaken
        for counted in passed_by.values():
            counted[held.container_id] += 1
        return True

    async def play() -> None:
        for step in steps:
            if isinstance(step, tuple):
                await submit(*step)
            else:
                for _ in range(step):
                    await take_one()
        while await take_one():
            pass
        assert not +queued

    world.run(play())
