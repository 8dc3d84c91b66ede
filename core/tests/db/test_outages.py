"""A server that refuses, stops answering or is slow: callers end in time, and the log says it once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from psycopg.conninfo import conninfo_to_dict

from latent_core.db import server
from latent_core.db.connection import Database, DatabaseTimeouts, deadline
from latent_core.domain.errors import ServiceUnreachable, TimedOut
from latent_core.telemetry import outage
from tests.support.servers.proxy import DatabaseProxy

ENDS_SECONDS = 8.0
"""A bound for a slow machine. Psycopg alone waits ten seconds for a cancelled statement, and longer for any other."""


@pytest.fixture
async def gate(dsn: str) -> AsyncIterator[DatabaseProxy]:
    if not str(conninfo_to_dict(dsn).get("host")).startswith("/"):
        pytest.skip("the test server is not on a Unix socket")
    async with DatabaseProxy(dsn) as opened:
        yield opened


@asynccontextmanager
async def through(gate: DatabaseProxy, *, wait: float = 5.0) -> AsyncIterator[Database]:
    limits = DatabaseTimeouts(wait=wait, statement=30, lock=5)
    async with await Database.open(gate.dsn, limits=limits, max_size=4) as db:
        yield db
        gate.speak()


async def one(db: Database) -> int:
    async with db.reading() as conn:
        row = await (await conn.execute("SELECT 1 AS one")).fetchone()
    assert row is not None
    return int(row["one"])


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name == "latent_core.db.server"]


@pytest.mark.parametrize("way", ["shut", "freeze"])
async def test_a_call_ends_with_its_callers_deadline(gate: DatabaseProxy, way: str) -> None:
    async with through(gate) as db:
        getattr(gate, way)()
        async with asyncio.timeout(ENDS_SECONDS):
            for _ in range(3):  # the first one finds an open connection, the others none
                with deadline(0.1), pytest.raises(ServiceUnreachable, match="retry"):
                    await one(db)


async def test_an_outer_deadline_stays_when_an_inner_one_is_later(gate: DatabaseProxy) -> None:
    async with through(gate) as db:
        gate.freeze()
        async with asyncio.timeout(ENDS_SECONDS):
            with deadline(0.1), deadline(60), pytest.raises(ServiceUnreachable):
                await one(db)


async def test_tasks_that_a_caller_starts_have_its_deadline(gate: DatabaseProxy) -> None:
    async with through(gate) as db:
        gate.freeze()
        async with asyncio.timeout(ENDS_SECONDS):
            with deadline(0.1):
                ended = await asyncio.gather(one(db), one(db), return_exceptions=True)
    assert [type(error) for error in ended] == [ServiceUnreachable, ServiceUnreachable]


async def test_a_deadline_that_is_kept_changes_nothing(database: Database) -> None:
    with deadline(30):
        assert await one(database) == 1
    assert await one(database) == 1


async def test_a_timeout_of_the_callers_own_is_not_the_servers(database: Database) -> None:
    with deadline(30), pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05), database.reading() as conn:
            await conn.execute("SELECT pg_sleep(30)")
    assert await one(database) == 1


async def test_a_statement_without_a_deadline_ends_when_the_server_stops_answering(
    gate: DatabaseProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "SILENT_SECONDS", 0.1)
    monkeypatch.setattr(server, "PROBE_SECONDS", 0.1)
    async with through(gate) as db:
        gate.freeze()
        async with asyncio.timeout(ENDS_SECONDS):
            with pytest.raises(ServiceUnreachable):
                await one(db)


async def test_a_dedicated_connection_ends_when_the_server_stops_answering(
    gate: DatabaseProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with through(gate) as db:
        monkeypatch.setattr(server, "SILENT_SECONDS", 0.1)
        monkeypatch.setattr(server, "PROBE_SECONDS", 0.1)

        async def frozen() -> None:
            async with db.dedicated(name="test") as conn:
                gate.freeze()
                await conn.execute("SELECT 1")

        async with asyncio.timeout(ENDS_SECONDS):
            with pytest.raises(ServiceUnreachable):
                await frozen()


async def test_a_long_statement_of_a_server_that_answers_is_not_given_up(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "SILENT_SECONDS", 0.02)
    async with database.reading() as conn:
        row = await (await conn.execute("SELECT 1 AS one FROM pg_sleep(0.5)")).fetchone()
    assert row == {"one": 1}


async def test_a_slow_server_is_waited_for_until_the_deadline(gate: DatabaseProxy) -> None:
    async with through(gate) as db:
        gate.delay_seconds = 0.05
        with deadline(30):
            assert await one(db) == 1
        gate.delay_seconds = 30.0
        async with asyncio.timeout(ENDS_SECONDS):
            with deadline(0.1), pytest.raises(ServiceUnreachable, match="in time"):
                await one(db)
        gate.delay_seconds = 0.0


@pytest.mark.parametrize("way", ["shut", "freeze"])
async def test_calls_work_again_when_the_server_is_back(gate: DatabaseProxy, way: str) -> None:
    async with through(gate) as db:
        getattr(gate, way)()
        for _ in range(3):
            with deadline(0.1), pytest.raises(ServiceUnreachable):
                await one(db)
        gate.open()
        gate.speak()
        assert await one(db) == 1


async def test_an_outage_is_one_log_line_when_it_begins_and_one_when_it_ends(
    gate: DatabaseProxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(outage, "QUIET_SECONDS", 0.0)
    caplog.set_level(logging.INFO)
    async with through(gate, wait=0.3) as db:
        gate.shut()
        for _ in range(4):
            with pytest.raises(ServiceUnreachable, match="not available"):
                await one(db)
        assert events(caplog) == ["postgres_unreachable"]
        gate.open()
        while True:
            try:
                assert await one(db) == 1
                break
            except ServiceUnreachable:
                pass
    assert events(caplog) == ["postgres_unreachable", "postgres_reachable"]
    begun, ended = (r for r in caplog.records if r.name == "latent_core.db.server")
    assert vars(begun)["cause"]
    assert vars(ended)["failures"] >= 4


async def test_a_busy_pool_is_no_outage(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    limits = DatabaseTimeouts(wait=0.1)
    async with await Database.open(dsn, max_size=1, limits=limits) as db, db.reading():
        with pytest.raises(ServiceUnreachable, match="became free"):
            await one(db)
    assert events(caplog) == []


async def test_a_ping_of_a_frozen_server_ends(gate: DatabaseProxy) -> None:
    async with through(gate, wait=0.2) as db:
        gate.freeze()
        async with asyncio.timeout(ENDS_SECONDS):
            with pytest.raises((TimedOut, ServiceUnreachable)):
                await db.ping()
