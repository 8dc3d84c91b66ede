"""Stores that are full: what was said is remembered, what is on this disk is measured."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from latent_core.backends import ProcessFolders, open_blobs, open_vectors
from latent_core.db import capacity
from latent_core.db.capacity import REMEMBERED_SECONDS, SERVICES, CapacityGuard
from latent_core.db.connection import Connection, Database
from latent_core.domain.errors import OutOfSpace, Service, ServiceUnreachable, StoreFull
from latent_core.domain.installation import MarkerPolicy
from latent_core.domain.job import JobState
from latent_core.queue.requeue import retry_or_fail
from latent_core.settings import load_settings
from tests.support.installations import OURS
from tests.support.queue import job, let_delays_pass, must_take, put, view

NONE: frozenset[Service] = frozenset()
ALL = frozenset(SERVICES)
MORE_THAN_THERE_IS = 1 << 40


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def conn(database: Database) -> AsyncIterator[Connection]:
    async with database.transaction() as opened:
        yield opened


async def test_a_server_that_says_it_is_full_is_left_alone_for_a_minute(conn: Connection) -> None:
    clock = Clock()
    capacity = CapacityGuard(servers=ALL, clock=clock)
    await capacity.check(conn)
    capacity.heard(StoreFull("full", service="minio"))
    clock.now += 12
    with pytest.raises(
        OutOfSpace, match=r"S3 server reported a full disk 12 s ago.*retry"
    ) as caught:
        await capacity.check(conn)
    assert caught.value.details == {"service": "minio", "retry_after": 48}
    assert capacity.known_full() == {"minio"}
    capacity.heard(caught.value)  # our own refusal is no news of the store
    clock.now += 48
    await capacity.check(conn)
    assert capacity.known_full() == NONE


async def test_what_a_worker_met_is_known_to_every_gateway_that_asks(conn: Connection) -> None:
    await capacity.note_full(conn, "qdrant")
    clock = Clock()
    guard = CapacityGuard(servers=ALL, clock=clock)
    with pytest.raises(OutOfSpace, match="Qdrant reported a full disk"):
        await guard.check(conn)
    clock.now += REMEMBERED_SECONDS
    await conn.execute(
        "UPDATE stores_over_capacity SET reported_at = reported_at - interval '61 seconds'"
    )
    await guard.check(conn)


async def test_other_errors_and_stores_of_this_machine_are_not_remembered(conn: Connection) -> None:
    guard = CapacityGuard(servers=frozenset({"postgres"}))
    guard.heard(ServiceUnreachable("gone"))
    guard.heard(OutOfSpace("of one upload"))
    guard.heard(StoreFull("on this disk", service="minio"))
    await capacity.note_full(conn, "minio")
    await guard.check(conn)


async def test_the_disk_of_what_is_embedded_is_measured_and_free_again_at_once(
    conn: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    settings = load_settings(min_free_bytes=MORE_THAN_THERE_IS, s3_endpoint="http://s3:1")
    capacity = CapacityGuard.of(settings, tmp_path)
    monkeypatch.setattr(capacity, "_clock", clock)
    with pytest.raises(OutOfSpace, match="less than LLC_MIN_FREE_BYTES"):
        await capacity.check(conn)
    assert capacity.known_full() == {"postgres", "qdrant"}
    monkeypatch.setattr(capacity, "_min_free", 1)
    clock.now += 3
    await capacity.check(conn)
    assert capacity.known_full() == NONE


async def test_a_disk_that_no_store_is_on_does_not_matter(conn: Connection, tmp_path: Path) -> None:
    await CapacityGuard(tmp_path, min_free=MORE_THAN_THERE_IS, servers=ALL).check(conn)


async def test_a_job_that_meets_a_full_store_waits_spends_no_attempt_and_tells_the_gateways(
    database: Database,
) -> None:
    (job_id,) = await put(database, job(max_attempts=1))
    for _ in range(3):
        await retry_or_fail(
            database, await must_take(database), StoreFull("full", service="qdrant")
        )
        await let_delays_pass(database)
    seen = await view(database, job_id)
    assert (seen.state, seen.attempts) == (JobState.QUEUED, 0)
    assert seen.cause is not None
    assert seen.cause.details == {"service": "qdrant"}
    async with database.reading() as conn:
        assert set(await capacity.reported_within(conn, 60)) == {"qdrant"}


async def test_a_store_too_full_for_the_note_of_it_lets_the_job_wait_all_the_same(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = "DO $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$"
    monkeypatch.setattr(capacity, "NOTE", full)
    (job_id,) = await put(database, job(max_attempts=1))
    error = StoreFull("full", service="postgres")
    assert await retry_or_fail(database, await must_take(database), error) == "paused"
    assert (await view(database, job_id)).state is JobState.QUEUED


async def test_the_embedded_stores_keep_the_configured_space_free(
    tmp_path: Path,
) -> None:
    settings = load_settings(data_dir=tmp_path, min_free_bytes=MORE_THAN_THERE_IS)
    (tmp_path / "tmp").mkdir()
    place = ProcessFolders(tmp_path, tmp_path / "models", tmp_path / "tmp", "", "", alone=True)
    async with AsyncExitStack() as services:
        vectors = await open_vectors(services, settings, place, OURS, MarkerPolicy.CREATE)
        with pytest.raises(StoreFull, match="1048576 MB must be") as caught:
            await vectors.create_collection("c", 4)
        assert caught.value.service == "qdrant"
        blobs = await open_blobs(services, settings, place, OURS, MarkerPolicy.CREATE)
        with pytest.raises(StoreFull, match=r"1048576 MB must be .LLC_MIN_FREE_BYTES"):
            await blobs.own.put(b"x")
        assert list(place.tmp.iterdir()) == []
