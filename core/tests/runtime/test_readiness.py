"""Readiness: what a process can still do is told in time, whichever of its services is away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from latent_core import readiness as module
from latent_core.blobs.files import FileBlobStore
from latent_core.blobs.port import BlobStore
from latent_core.db.capacity import CapacityGuard
from latent_core.db.connection import Database
from latent_core.domain.errors import Misconfigured, NotFound, ServiceUnreachable, StoreFull
from latent_core.readiness import Readiness
from latent_core.telemetry.metrics import Metrics
from latent_core.vectors.edge.index import EdgeVectorIndex
from latent_core.vectors.port import VectorIndex
from tests.support.harness.installation import eventually
from tests.support.servers.faulty_link import FaultyLink, LinkState

ALL_WELL = {"postgres": "ok", "qdrant": "ok", "minio": "ok"}


@dataclass
class Stores:
    """The vector engine and the blob store, and what each does when it is asked."""

    calls: list[str] = field(default_factory=list)
    trouble: dict[str, Exception] = field(default_factory=dict)
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    hangs: bool = False
    """Whether a call goes on after it was cancelled, as one of psycopg does."""

    async def _ask(self, name: str) -> None:
        self.calls.append(name)
        while not self.answers.is_set():
            try:
                await self.answers.wait()
            except asyncio.CancelledError:
                if not self.hangs:
                    raise
        if name in self.trouble:
            raise self.trouble[name]

    async def count(self, _: str) -> int:
        await self._ask("qdrant")
        raise NotFound("there is no such collection")

    async def verify(self) -> None:
        await self._ask("minio")

    def readiness(
        self,
        database: Database,
        capacity: CapacityGuard | None = None,
        metrics: Metrics | None = None,
    ) -> Readiness:
        return Readiness(
            database,
            cast(VectorIndex, self),
            cast(BlobStore, self),
            capacity or CapacityGuard(),
            metrics or Metrics(),
            writes=False,
        )


async def test_many_requests_at_once_are_one_look_which_outlives_a_caller_that_disconnects(
    database: Database,
) -> None:
    stores = Stores()
    readiness = stores.readiness(database)
    requests = [asyncio.create_task(readiness.answer()) for _ in range(50)]

    async def begun() -> bool:
        return len(stores.calls) == 2

    await eventually(begun, what="a look at both stores")
    requests[0].cancel()
    stores.answers.set()
    answers = await asyncio.gather(*requests[1:])
    assert len(stores.calls) == 2
    assert all(ready and one.services == ALL_WELL for ready, one in answers)
    await readiness.answer()
    assert len(stores.calls) == 4  # a later one looks again


async def test_searches_are_answered_without_vectors_and_blobs(database: Database) -> None:
    stores = Stores(trouble={"qdrant": KeyError("odd"), "minio": ServiceUnreachable("refused")})
    stores.answers.set()
    metrics = Metrics()
    ready, answer = await stores.readiness(database, metrics=metrics).answer()
    assert ready
    assert answer.status == "degraded"
    assert answer.services == {"postgres": "ok", "qdrant": "down", "minio": "down"}
    value = metrics.registry.get_sample_value
    assert value("latent_service_up", {"service": "postgres"}) == 1
    assert value("latent_service_up", {"service": "minio"}) == 0


async def test_a_bucket_that_is_lost_or_belongs_to_another_database_is_down(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    stores = Stores(trouble={"minio": Misconfigured("the bucket 'b' has no marker")})
    stores.answers.set()
    _, answer = await stores.readiness(database).answer()
    assert answer.services == ALL_WELL | {"minio": "down"}
    assert "no marker" in vars(caplog.records[-1])["cause"]


async def test_a_store_that_hangs_delays_no_answer_and_is_logged_once(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "PROBE_SECONDS", 0.5)
    caplog.set_level(logging.INFO, module.__name__)
    stores = Stores(hangs=True)
    readiness = stores.readiness(database)
    for _ in range(2):
        ready, answer = await readiness.answer()
        assert ready
        assert answer.services == {"postgres": "ok", "qdrant": "down", "minio": "down"}
    assert sorted(stores.calls) == ["minio", "qdrant"], "no call beside one that hangs"
    stores.answers.set()

    async def back() -> bool:
        return (await readiness.answer())[1].services == ALL_WELL

    await eventually(back, what="the answer of the stores")
    lines = [(r.message, vars(r)["service"]) for r in caplog.records]
    assert sorted(lines) == [
        ("service_down", "minio"),
        ("service_down", "qdrant"),
        ("service_up", "minio"),
        ("service_up", "qdrant"),
    ]
    assert {vars(r).get("failed_probes") for r in caplog.records} >= {2}


async def test_a_full_store_is_reported_even_when_it_has_stopped(database: Database) -> None:
    stores, metrics = Stores(trouble={"minio": ServiceUnreachable("no space")}), Metrics()
    stores.answers.set()
    capacity = CapacityGuard(servers=frozenset({"qdrant", "minio"}))
    for service in ("qdrant", "minio"):
        capacity.heard(StoreFull("no space left", service=cast(Any, service)))
    ready, answer = await stores.readiness(database, capacity, metrics).answer()
    assert ready
    assert answer.services == {"postgres": "ok", "qdrant": "full", "minio": "down"}
    value = metrics.registry.get_sample_value
    assert value("latent_service_full", {"service": "minio"}) == 1
    assert value("latent_service_full", {"service": "postgres"}) == 0


@asynccontextmanager
async def opened(
    dsn: str, folder: Path, *, writes: bool
) -> AsyncIterator[tuple[Readiness, Metrics]]:
    """On a real database, a real vector engine and files."""
    metrics, tmp = Metrics(), folder / "tmp"
    tmp.mkdir(parents=True)
    async with await Database.open(dsn) as database:
        vectors = await EdgeVectorIndex.open(folder / "vectors")
        try:
            blobs = FileBlobStore(folder / "blobs", tmp)
            yield (
                Readiness(database, vectors, blobs, CapacityGuard(), metrics, writes=writes),
                metrics,
            )
        finally:
            await vectors.close()


@pytest.mark.parametrize(("writes", "expected"), [(False, True), (True, False)])
async def test_a_gateway_needs_no_writes_and_a_worker_does(
    dsn: str, data_root: Path, writes: bool, expected: bool
) -> None:
    async with opened(dsn, data_root, writes=writes) as (readiness, metrics):
        ready, answer = await readiness.answer()
        assert (ready, answer.status, answer.services) == (True, "ok", ALL_WELL)
        assert metrics.registry.get_sample_value(*READ_ONLY) == 0
    refusing = make_conninfo(dsn, options="-c default_transaction_read_only=on")
    async with opened(refusing, data_root / "again", writes=writes) as (readiness, metrics):
        ready, answer = await readiness.answer()
        assert (ready, answer.status) == (expected, "degraded")
        assert answer.services == ALL_WELL | {"postgres": "read_only"}
        assert metrics.registry.get_sample_value(*READ_ONLY) == 1


READ_ONLY = ("latent_service_read_only", {"service": "postgres"})


async def test_a_frozen_database_is_down_in_time_and_back_when_it_answers(
    dsn: str, data_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PROBE_SECONDS", 0.5)
    there = conninfo_to_dict(dsn)
    async with FaultyLink(str(there["host"]), int(there.get("port") or 5432)) as link:
        through = make_conninfo(dsn, host="127.0.0.1", port=link.port, sslmode="disable")
        async with opened(through, data_root, writes=False) as (readiness, _):
            assert (await readiness.answer())[0]
            link.become(LinkState.FROZEN)
            async with asyncio.timeout(4):  # psycopg waits for ten seconds after a cancellation
                ready, answer = await readiness.answer()
            assert not ready
            assert answer.services == ALL_WELL | {"postgres": "down"}
            link.become(LinkState.OPEN)

            async def back() -> bool:
                return (await readiness.answer())[0]

            await eventually(back, what="the answer of Postgres")
