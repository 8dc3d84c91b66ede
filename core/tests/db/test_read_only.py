"""A server that accepts reads only: told as such, once, and left as soon as it accepts writes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.errors import ReadOnlySqlTransaction

from latent_core.db import installation, placement, tokens
from latent_core.db.connection import Database
from latent_core.db.migrate import migrate
from latent_core.domain.errors import ReadOnlyStore
from latent_core.domain.job import JobKind
from latent_core.domain.token import Scope
from latent_core.queue.context import JobContext
from latent_core.queue.runner import Runner
from latent_core.settings import Settings
from latent_core.stack import Stack
from latent_core.telemetry import outage
from tests.support.queue import put, sql, until
from tests.support.servers.postgres_server import (
    postgres_server,
    set_read_only,
    standby,
    wheel_programs,
)
from tests.support.servers.qdrant_server import QdrantServer

PROMOTE = "SELECT pg_promote(true, 60)"
KEEP = "INSERT INTO secrets VALUES (%(name)s, 'x')"


@pytest.fixture(autouse=True)
def _no_quiet_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "QUIET_SECONDS", 0.0)


@pytest.fixture
def read_only(dsn: str) -> Iterator[str]:
    """The DSN of a migrated database that accepts reads only."""
    set_read_only(dsn, on=True)
    yield dsn
    set_read_only(dsn, on=False)


async def keep(db: Database, name: str) -> None:
    async with db.transaction() as conn:
        await conn.execute(KEEP, {"name": name})


async def test_a_refused_write_names_the_cause_and_reads_go_on(read_only: str) -> None:
    async with await Database.open(read_only) as db:
        with pytest.raises(ReadOnlyStore, match="accepts reads only") as caught:
            await keep(db, "a")
        assert (caught.value.status, caught.value.code) == (503, "UNAVAILABLE")
        assert caught.value.details["retry_after"] > 0
        assert db.read_only
        async with db.reading() as conn:
            assert (await (await conn.execute("SELECT 1 AS one")).fetchone()) == {"one": 1}


async def test_single_statements_and_dedicated_connections_raise_the_same_error(
    read_only: str,
) -> None:
    async with await Database.open(read_only) as db:
        with pytest.raises(ReadOnlyStore):
            async with db.single() as conn:
                await conn.execute(KEEP, {"name": "a"})
        with pytest.raises(ReadOnlyStore):
            async with db.dedicated(name="test") as conn:
                await conn.execute(KEEP, {"name": "a"})


async def test_a_write_in_a_transaction_that_only_reads_is_an_error_of_the_code(
    database: Database,
) -> None:
    with pytest.raises(ReadOnlySqlTransaction):
        async with database.transaction(read_only=True) as conn:
            await conn.execute(KEEP, {"name": "a"})
    assert not database.read_only


async def test_a_ping_notices_the_begin_and_the_end_without_a_write(dsn: str) -> None:
    async with await Database.open(dsn) as db:
        await db.ping()
        assert not db.read_only
        set_read_only(dsn, on=True)
        await db.ping()
        assert db.read_only
        set_read_only(dsn, on=False)
        await db.ping()  # on a connection made meanwhile, if it is not replaced
        await db.ping()
        assert not db.read_only


async def test_connections_made_meanwhile_do_not_stay_read_only(dsn: str) -> None:
    set_read_only(dsn, on=True)
    async with await Database.open(dsn, min_size=3, max_size=3) as db:
        with pytest.raises(ReadOnlyStore):
            await keep(db, "a")
        set_read_only(dsn, on=False, end_sessions=False)
        await until(lambda: pinged(db))
        for number in range(6):
            await keep(db, f"kept {number}")


async def pinged(db: Database) -> bool:
    await db.ping()
    return not db.read_only


async def test_a_token_is_valid_although_its_use_cannot_be_noted(dsn: str) -> None:
    async with await Database.open(dsn) as db:
        async with db.transaction() as conn:
            token = tokens.NewToken("agent:a", "a", frozenset({Scope.READ}), None, None)
            made = await tokens.create(conn, token, b"x" * 32, created_by="local:you")
        set_read_only(dsn, on=True)
        async with db.reading() as conn:
            await tokens.note_use(conn, made.id)
        set_read_only(dsn, on=False)


async def test_a_start_that_has_nothing_to_write_works(dsn: str) -> None:
    async with await Database.open(dsn) as db, db.transaction() as conn:
        before = await installation.ensure_installation(conn)
        secret = await installation.ensure_secret(conn, installation.SIGNING_KEY)
    set_read_only(dsn, on=True)
    assert await migrate(dsn) == []
    async with await Database.open(dsn) as db, db.transaction() as conn:
        assert await installation.ensure_installation(conn) == before
        assert await installation.ensure_secret(conn, installation.SIGNING_KEY) == secret
    set_read_only(dsn, on=False)


def on_servers(dsn: str, folder: Path, qdrant: QdrantServer, collections: int = 200) -> Settings:
    """Of a gateway or worker. The S3 server is away, which stops no start."""
    return Settings(
        _env_file=None,
        data_dir=folder,
        postgres_dsn=dsn,
        qdrant_url=qdrant.url,
        qdrant_collections=collections,
        s3_endpoint="http://127.0.0.1:9",
        s3_access_key="key",
        s3_secret_key="secret",
    )


@pytest.mark.parametrize("collections", [200, 100])
@pytest.mark.parametrize("name", ["gateway", "worker"])
async def test_gateways_and_workers_start_also_with_another_setting(
    dsn: str, tmp_path: Path, name: str, collections: int, caplog: pytest.LogCaptureFixture
) -> None:
    with QdrantServer() as qdrant:
        async with Stack.open(on_servers(dsn, tmp_path, qdrant), name=name):
            pass
        set_read_only(dsn, on=True)
        async with Stack.open(on_servers(dsn, tmp_path, qdrant, collections), name=name) as stack:
            async with stack.db.reading() as conn:
                assert (await placement.usage(conn)).bound == 200
            ready, answer = await stack.readiness.answer()
            assert (ready, answer.services["postgres"]) == (name == "gateway", "read_only")
        set_read_only(dsn, on=False)
    refused = [r for r in caplog.records if r.message == "collections_bound_not_stored"]
    assert len(refused) == (collections != 200)


async def test_a_start_with_embedded_stores_works(dsn: str, data_root: Path) -> None:
    settings = Settings(_env_file=None, data_dir=data_root / "data", postgres_dsn=dsn)
    async with Stack.open(settings):
        pass
    set_read_only(dsn, on=True)
    async with Stack.open(settings) as stack:
        assert stack.db.read_only
    set_read_only(dsn, on=False)


async def test_a_worker_logs_the_begin_and_the_end_once_and_works_again(
    dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def nothing(context: JobContext) -> None:
        await context.checkpoint()

    async with await Database.open(dsn) as db:
        set_read_only(dsn, on=True)
        runner = Runner(
            db,
            {JobKind.INGEST: nothing},
            worker_id="w",
            concurrency=2,
            lease_seconds=30.0,
            poll_seconds=0.02,
        )
        task = asyncio.create_task(runner.run())
        await until(lambda: runner._claims._failures >= 5)
        set_read_only(dsn, on=False)
        await put(db)
        await until(lambda: runner.stats.settled == 1)
        runner.stop()
        await task
    begun, ended = (r for r in caplog.records if r.message in ("claim_failed", "claim_recovered"))
    assert "accepts reads only" in vars(begun)["cause"]
    assert vars(ended)["failures"] >= 5
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_real_standby_is_read_only_until_it_is_promoted(tmp_path: Path) -> None:
    binaries = wheel_programs(18)
    with postgres_server(binaries) as primary, QdrantServer() as qdrant:
        async with Stack.open(on_servers(primary, tmp_path, qdrant), name="gateway"):
            pass
        with standby(binaries, primary) as dsn:
            async with await Database.open(dsn) as db:
                await db.ping()
                assert db.read_only
                assert await sql(db, "SELECT count(*) AS n FROM secrets") == [{"n": 1}]
                async with Stack.open(on_servers(dsn, tmp_path, qdrant), name="gateway"):
                    pass
                with pytest.raises(ReadOnlyStore):
                    await keep(db, "a")
                with psycopg.connect(dsn, autocommit=True) as conn:
                    conn.execute(PROMOTE)
                await db.ping()
                assert not db.read_only
                await keep(db, "a")
