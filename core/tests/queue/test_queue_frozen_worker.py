"""A real worker process is frozen past its lease at every step, and wakes: no effect happens twice (F1, F2, F3)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pytest

from latent_core.db.connection import Connection, Database
from latent_core.domain.ids import JobId
from latent_core.domain.job import ClaimedJob, JobKind
from latent_core.queue.context import JobContext
from latent_core.queue.errors import LeaseLost
from latent_core.queue.finish import finish
from latent_core.queue.reaper import reap
from latent_core.queue.runner import Runner
from latent_core.runtime.lifeline import signal_on_parent_death
from tests.support import REPOSITORY
from tests.support.queue import job, must_take, put, sql, until

LEASE_SECONDS = 1.0
STEPS = ("before its work", "in the middle", "before finish")
INSIDE = "inside the finishing transaction"
EFFECT = "INSERT INTO effects (job_id, worker) VALUES (%(job_id)s, %(worker)s)"


# --- the worker: this file, run as a program ---------------------------------------------------


def tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def pause_at(step: str, job: ClaimedJob) -> None:
    """If this is the step of the job's payload, say so and wait for a line."""
    if job.payload["freeze"] == step:
        tell(step)
        await asyncio.to_thread(sys.stdin.readline)


async def handle(db: Database, context: JobContext) -> None:
    job = context.job
    try:
        await pause_at(STEPS[0], job)
        await context.checkpoint()
        await pause_at(STEPS[1], job)
        await context.checkpoint()
        await pause_at(STEPS[2], job)
        async with db.transaction() as conn:
            await write_effect(conn, job, "frozen")
            await pause_at(INSIDE, job)
    except LeaseLost:
        tell("LeaseLost")
        raise
    tell("finished")


async def write_effect(conn: Connection, job: ClaimedJob, worker: str) -> None:
    await finish(conn, job)
    await conn.execute(EFFECT, {"job_id": job.id, "worker": worker})


async def work(dsn: str) -> None:
    async with await Database.open(dsn, name="worker") as db:
        runner = Runner(
            db,
            {JobKind.INGEST: lambda context: handle(db, context)},
            worker_id="frozen",
            concurrency=1,
            lease_seconds=LEASE_SECONDS,
            poll_seconds=0.05,
        )
        await runner.run()


# --- the test ----------------------------------------------------------------------------------


@dataclass
class Worker:
    """The process, and what it says."""

    process: subprocess.Popen[str]

    async def says(self) -> str:
        assert self.process.stdout is not None
        async with asyncio.timeout(20):
            return (await asyncio.to_thread(self.process.stdout.readline)).strip()

    async def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        await asyncio.to_thread(os.waitid, os.P_PID, self.process.pid, os.WSTOPPED)

    def wake(self) -> None:
        assert self.process.stdin is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write("go on\n")
        self.process.stdin.flush()


@pytest.fixture
def worker(dsn: str) -> Iterator[Worker]:
    with subprocess.Popen(
        [sys.executable, "-m", "core.tests.queue.test_queue_frozen_worker", dsn],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Worker(process)
        finally:
            process.kill()


async def submit(db: Database, step: str) -> JobId:
    (job_id,) = await put(db, job(doc_key="doc", payload={"freeze": step}))
    return job_id


async def expired(db: Database, job_id: JobId) -> bool:
    statement = "SELECT lease_expires < now() AS expired FROM jobs WHERE id = %(id)s"
    return [row["expired"] for row in await sql(db, statement, id=job_id)] == [True]


async def effects(db: Database, job_id: JobId) -> list[str]:
    rows = await sql(db, "SELECT worker FROM effects WHERE job_id = %(id)s", id=job_id)
    return [row["worker"] for row in rows]


async def take_over(db: Database, job_id: JobId) -> ClaimedJob:
    assert await reap(db) == [job_id]
    other = await must_take(db)
    assert other.id == job_id
    return other


async def effect_of(db: Database, job: ClaimedJob) -> None:
    async with db.transaction() as conn:
        await write_effect(conn, job, "other")


@pytest.fixture
async def frozen_database(database: Database) -> Database:
    await sql(database, "CREATE TABLE effects (job_id bigint, worker text)")
    return database


async def test_a_worker_frozen_past_its_lease_at_any_step_has_no_effect(
    frozen_database: Database, worker: Worker
) -> None:
    db = frozen_database
    for step in STEPS:
        for other_is_done in (True, False):
            job_id = await submit(db, step)
            assert await worker.says() == step
            await worker.freeze()
            await until(partial(expired, db, job_id))
            other = await take_over(db, job_id)
            if other_is_done:
                await effect_of(db, other)
            worker.wake()
            assert await worker.says() == "LeaseLost", (step, other_is_done)
            if not other_is_done:
                assert await effects(db, job_id) == []
                await effect_of(db, other)
            assert await effects(db, job_id) == ["other"]


async def test_a_worker_frozen_past_its_lease_goes_on_if_nobody_took_the_job(
    frozen_database: Database, worker: Worker
) -> None:
    db = frozen_database
    for step in (*STEPS, INSIDE):
        job_id = await submit(db, step)
        assert await worker.says() == step
        await worker.freeze()
        await until(partial(expired, db, job_id))
        if step == INSIDE:
            assert await reap(db) == []  # its open transaction holds the job, nobody can take it
        worker.wake()
        assert await worker.says() == "finished"
        assert await effects(db, job_id) == ["frozen"]


if __name__ == "__main__":
    signal_on_parent_death()
    asyncio.run(work(sys.argv[1]))
