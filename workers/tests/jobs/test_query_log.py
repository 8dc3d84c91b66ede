"""Maintenance of the log of queries, and its end with the container."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from latent_core.db import containers, query_log
from latent_core.db.connection import Database
from latent_core.db.query_log import QueryRecord
from latent_core.ingest import containers as founding
from latent_workers import maintenance
from tests.support.harness.transfers import delete
from tests.support.harness.worker_harness import CONTAINER, WorkerHarness, open_harness
from tests.support.queue import sql


@pytest.fixture
async def harness(database: Database, tmp_path: Path) -> AsyncIterator[WorkerHarness]:
    async with open_harness(database, tmp_path) as one:
        yield one


async def keep(harness: WorkerHarness, days: int | None) -> None:
    async with harness.stack.db.transaction() as conn:
        container = await containers.get(conn, CONTAINER)
        assert container is not None
        log = container.manifest.query_log.model_copy(update={"keep_days": days})
        manifest = container.manifest.model_copy(update={"query_log": log})
        assert await containers.update_manifest(
            conn, manifest, founding.etag(manifest), container.etag
        )


async def note(harness: WorkerHarness, query: str, *, days_ago: float = 0) -> None:
    record = QueryRecord(
        container_id=CONTAINER,
        at=datetime.now(UTC) - timedelta(days=days_ago),
        query=query,
        mode="hybrid",
        filtered=False,
        containers=1,
        hits=0,
        all_hits=0,
        relevance=None,
    )
    async with harness.stack.db.transaction() as conn:
        await query_log.insert(conn, [record])


async def kept(harness: WorkerHarness) -> list[str]:
    rows = await sql(harness.stack.db, "SELECT query FROM query_log ORDER BY id")
    return [row["query"] for row in rows]


async def test_maintenance_removes_what_is_older_than_the_manifest_keeps(
    harness: WorkerHarness,
) -> None:
    await keep(harness, 7)
    await note(harness, "old", days_ago=8)
    await note(harness, "young", days_ago=6)
    await maintenance.look(harness.deps.settings, harness.stack)
    assert await kept(harness) == ["young"]
    await keep(harness, None)
    await note(harness, "after it was switched off")
    assert await kept(harness) == ["young"], "nothing is added"
    await maintenance.look(harness.deps.settings, harness.stack)
    assert await kept(harness) == []


async def test_maintenance_keeps_only_so_many_entries_of_a_container(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_log, "MAX_ROWS", 2)
    await keep(harness, 7)
    for query in ("first", "second", "third", "fourth"):
        await note(harness, query)
    await maintenance.look(harness.deps.settings, harness.stack)
    assert await kept(harness) == ["third", "fourth"]


async def test_the_log_ends_with_its_container_and_the_proof_counts_it(
    harness: WorkerHarness,
) -> None:
    await keep(harness, 7)
    await note(harness, "lamp")
    await delete(harness, CONTAINER)
    assert await kept(harness) == []
    (job,) = await sql(harness.stack.db, "SELECT result FROM jobs WHERE kind = 'delete_container'")
    assert job["result"]["logged_queries"] == 1
