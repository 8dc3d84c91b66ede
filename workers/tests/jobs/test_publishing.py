"""Documents that are ready at the same time: published together, each fenced by its own job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from latent_core.db.connection import Connection, Database
from latent_core.domain.errors import Unavailable
from latent_core.ingest.publish import PublicationResult, StagedGeneration
from latent_core.queue.errors import JobCancelled, LeaseLost
from latent_workers import publishing
from tests.support.harness.worker_harness import WorkerHarness, open_harness
from tests.support.queue import sql

NAMES = ("a", "b", "c", "d")


class DatabaseProxy:
    """Publications stop before they write, until it opens; how many documents each had."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.reached = asyncio.Event()
        self.open = asyncio.Event()
        self._publish = publishing.publish
        monkeypatch.setattr(publishing, "publish", self)

    async def __call__(
        self, conn: Connection, container_id: str, staged: Sequence[StagedGeneration]
    ) -> PublicationResult:
        self.sizes.append(len(staged))
        self.reached.set()
        await self.open.wait()
        return await self._publish(conn, container_id, staged)


@pytest.fixture
async def harness(database: Database, tmp_path: Path) -> AsyncIterator[WorkerHarness]:
    async with open_harness(database, tmp_path) as opened:
        yield opened


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> DatabaseProxy:
    return DatabaseProxy(monkeypatch)


async def waiting(
    harness: WorkerHarness, gate: DatabaseProxy, monkeypatch: pytest.MonkeyPatch
) -> list[Any]:
    """Four documents under way: the first stands at the gate, and the others wait for it."""
    come = asyncio.Semaphore(0)
    ask = harness.deps.publishing.publish

    async def recording_publish(
        container_id: str, ready: publishing.ReadyGeneration
    ) -> PublicationResult:
        come.release()
        return await ask(container_id, ready)

    monkeypatch.setattr(harness.deps.publishing, "publish", recording_publish)
    tasks = []
    for name in NAMES:
        await harness.add(f"{name}.txt", f"the lamp of {name} is lit".encode())
    while (job := await harness.claim()) is not None:
        tasks.append(asyncio.create_task(harness.run(job)))
        await come.acquire()
        await gate.reached.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    return tasks


async def visible(harness: WorkerHarness) -> list[str]:
    rows = await sql(
        harness.stack.db, "SELECT title FROM documents WHERE live_generation = 1 ORDER BY title"
    )
    return [row["title"] for row in rows]


async def test_what_is_ready_while_one_is_published_goes_together_in_the_next(
    harness: WorkerHarness, gate: DatabaseProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = await waiting(harness, gate, monkeypatch)
    gate.open.set()
    assert await asyncio.gather(*tasks) == [None] * 4
    assert gate.sizes == [1, 3]
    jobs = await sql(
        harness.stack.db,
        "SELECT state, progress_done, progress_total FROM jobs WHERE kind = 'ingest'",
    )
    assert [tuple(job.values()) for job in jobs] == [("done", 1, 1)] * 4
    commits = await sql(harness.stack.db, "SELECT count(DISTINCT xmin::text) AS n FROM documents")
    assert commits[0]["n"] == 2
    drawings = await sql(harness.stack.db, "SELECT count(*) AS n FROM jobs WHERE kind = 'render'")
    assert drawings[0]["n"] == 4
    await harness.settle()
    report = await harness.examine()
    assert report.clean, report
    assert len(await harness.texts()) == 4


async def test_who_lost_its_claim_or_is_to_be_cancelled_is_not_published_and_hinders_no_other(
    harness: WorkerHarness, gate: DatabaseProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = await waiting(harness, gate, monkeypatch)
    cancelled, lost = await sql(
        harness.stack.db, "SELECT id FROM jobs WHERE kind = 'ingest' ORDER BY id OFFSET 2"
    )
    await sql(
        harness.stack.db, "UPDATE jobs SET cancel_requested = true WHERE id = %(id)s", **cancelled
    )
    await sql(
        harness.stack.db,
        "UPDATE jobs SET claim_id = nextval('claim_ids') WHERE id = %(id)s",
        **lost,
    )
    gate.open.set()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(end) for end in ends] == [type(None), type(None), JobCancelled, LeaseLost]
    assert await visible(harness) == ["a.txt", "b.txt"]


async def test_what_cannot_go_together_goes_alone(
    harness: WorkerHarness, gate: DatabaseProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = await waiting(harness, gate, monkeypatch)
    through = publishing.publish

    async def one_at_a_time(
        conn: Connection, container_id: str, staged: Sequence[StagedGeneration]
    ) -> PublicationResult:
        published = await through(conn, container_id, staged)
        if len(staged) > 1:
            raise Unavailable("the transaction was ended")
        return published

    monkeypatch.setattr(publishing, "publish", one_at_a_time)
    gate.open.set()
    assert await asyncio.gather(*tasks) == [None] * 4
    assert sorted(gate.sizes) == [1, 1, 1, 1, 3]
    assert await visible(harness) == ["a.txt", "b.txt", "c.txt", "d.txt"]


async def test_who_is_stopped_while_it_waits_leaves_the_line_to_the_others(
    harness: WorkerHarness, gate: DatabaseProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = await waiting(harness, gate, monkeypatch)
    tasks[0].cancel()  # the one that publishes, and one that waits for it
    tasks[2].cancel()
    gate.open.set()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(end) for end in ends] == [
        asyncio.CancelledError,
        type(None),
        asyncio.CancelledError,
        type(None),
    ]
    assert await visible(harness) == ["b.txt", "d.txt"]
