"""What a container takes in each store: measured by maintenance, kept by day, removed with the container."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from latent_core.db import container_sizes
from latent_core.db.connection import Database
from latent_core.domain.ids import Sha256
from latent_core.ingest.delete import delete_container
from latent_core.wire.container_sizes import MAX_DAYS, StoreSizes
from latent_workers import maintenance
from latent_workers.container_sizes import measure_containers
from tests.support.harness.worker_harness import CONTAINER, DIMS, WorkerHarness, open_harness
from tests.support.queue import sql

TEXT: Final = b"# Tides\n\nThe harbour is deep at high tide.\n"
EARLIER: Final = """
UPDATE container_sizes SET day = day - %(days)s::integer, measured_at = measured_at - make_interval(days => %(days)s)
"""


@pytest.fixture
async def harness(database: Database, tmp_path: Path) -> AsyncIterator[WorkerHarness]:
    async with open_harness(database, tmp_path) as one:
        yield one


async def history(harness: WorkerHarness, days: int = MAX_DAYS) -> list[StoreSizes]:
    async with harness.stack.db.reading() as conn:
        return await container_sizes.history(conn, CONTAINER, days)


async def test_every_store_is_measured_and_what_documents_share_counts_once(
    harness: WorkerHarness,
) -> None:
    for name in ("a.md", "b.md"):
        await harness.add(name, TEXT, mime="text/markdown")
    assert await harness.work() == []
    await maintenance.look(harness.deps.settings, harness.stack)
    (sizes,) = await history(harness)
    assert (sizes.documents, sizes.originals, sizes.original_bytes) == (2, 1, len(TEXT))
    chunks = await sql(harness.stack.db, "SELECT count(*) AS n, sum(windows) AS points FROM chunks")
    assert sizes.chunks == chunks[0]["n"] > 0
    assert sizes.vectors == chunks[0]["points"]
    assert sizes.vector_bytes == sizes.vectors * DIMS * 4
    assert sizes.postgres_rows > sizes.documents + sizes.chunks
    assert sizes.postgres_bytes > 400 * sizes.chunks
    images = await sql(
        harness.stack.db, "SELECT DISTINCT sha256 FROM blob_refs WHERE role <> 'original'"
    )
    stored = [await harness.stack.blobs.own.size(Sha256(row["sha256"])) for row in images]
    assert (sizes.page_files, sizes.page_file_bytes) == (len(stored), sum(filter(None, stored)))
    assert sizes.bytes == (
        sizes.postgres_bytes + sizes.vector_bytes + sizes.original_bytes + sizes.page_file_bytes
    )


async def test_a_day_has_one_measurement_and_old_ones_are_forgotten(
    harness: WorkerHarness,
) -> None:
    assert await measure_containers(harness.stack) == 1
    assert await measure_containers(harness.stack) == 0  # measured within the hour
    await sql(harness.stack.db, EARLIER, days=2)
    await harness.add("a.md", TEXT, mime="text/markdown")
    assert await harness.work() == []
    assert await measure_containers(harness.stack) == 1
    await sql(
        harness.stack.db,
        "UPDATE container_sizes SET measured_at = measured_at - interval '2 hours'",
    )
    assert await measure_containers(harness.stack) == 1
    assert [one.documents for one in await history(harness)] == [0, 1]
    assert [one.documents for one in await history(harness, days=2)] == [1]
    await sql(harness.stack.db, EARLIER, days=MAX_DAYS - 1)
    await measure_containers(harness.stack)
    ages = await sql(harness.stack.db, "SELECT current_date - day AS age FROM container_sizes")
    assert sorted(row["age"] for row in ages) == [0, MAX_DAYS - 1]


async def test_measurements_go_with_their_container(harness: WorkerHarness) -> None:
    await measure_containers(harness.stack)
    async with harness.stack.db.transaction() as conn:
        await delete_container(conn, CONTAINER, principal="local:you")
    assert await measure_containers(harness.stack) == 0
    await harness.work()
    assert await sql(harness.stack.db, "SELECT 1 FROM container_sizes") == []
