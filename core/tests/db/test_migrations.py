"""Replaying the revisions gives the schema the code expects, once, whoever else does it too."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Connection

from latent_core.db import migrate as migration
from latent_core.db.migrate import (
    LOCK_KEY,
    current_revision,
    head_revision,
    migrate,
    migrations_folder,
    pending,
)
from latent_core.domain.errors import Conflict, TimedOut, Unavailable
from latent_core.runtime.cluster import programs
from tests.support.queue import until

GOLDEN = Path(__file__).with_name("schema.sql.golden")
NOISE = re.compile(
    r"^(--.*|SET .*|SELECT pg_catalog\.set_config.*|\\(un)?restrict .*)?\n", re.MULTILINE
)


def dump(dsn: str) -> str:
    """The schema as pg_dump tells it, without what depends on the server's release."""
    done = subprocess.run(
        [programs() / "pg_dump", "--schema-only", "--no-owner", "--no-privileges", "-d", dsn],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return NOISE.sub("", done.stdout)


async def test_the_revisions_give_the_schema_the_code_expects(
    empty_dsn: str, update_golden: bool
) -> None:
    await migrate(empty_dsn)
    schema = await asyncio.to_thread(dump, empty_dsn)
    if update_golden:
        GOLDEN.write_text(schema, encoding="utf-8")
        pytest.fail(f"{GOLDEN.name} is written: review it, then run without --update-golden")
    assert schema == GOLDEN.read_text(encoding="utf-8"), (
        "the schema changed: if that is meant, run pytest with --update-golden"
    )


async def test_an_empty_database_waits_for_all_revisions_and_a_migrated_one_for_none(
    empty_dsn: str,
) -> None:
    waiting = await pending(empty_dsn)
    assert waiting[-1] == head_revision()
    assert await current_revision(empty_dsn) is None
    assert await migrate(empty_dsn) == waiting
    assert await current_revision(empty_dsn) == head_revision()
    assert await pending(empty_dsn) == []
    assert await migrate(empty_dsn) == []


async def test_of_several_that_migrate_at_once_one_does_it_and_the_others_wait(
    empty_dsn: str,
) -> None:
    script = (
        "import asyncio, sys; from latent_core.db.migrate import migrate;"
        "print(len(asyncio.run(migrate(sys.argv[1]))))"
    )
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, empty_dsn, stdout=asyncio.subprocess.PIPE
    )
    applied = await asyncio.gather(*(migrate(empty_dsn) for _ in range(3)))
    output, _ = await asyncio.wait_for(other.communicate(), 60)
    counts = sorted([int(output), *map(len, applied)])
    assert counts == [0, 0, 0, len(list((migrations_folder() / "versions").glob("*.py")))]


def lock_taken(dsn: str) -> psycopg.Connection:
    """The lock of a process that migrates."""
    conn = psycopg.connect(dsn, autocommit=True, application_name="latent migrate elsewhere")
    conn.execute("SELECT pg_advisory_lock(%s)", [LOCK_KEY])
    return conn


async def test_who_waits_for_a_migration_logs_who_holds_the_lock(
    empty_dsn: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(migration, "FIRST_NOTE_SECONDS", 0.05)
    monkeypatch.setattr(migration, "SECONDS_BETWEEN_NOTES", 60.0)
    with lock_taken(empty_dsn) as holder:
        waiting = asyncio.create_task(migrate(empty_dsn))
        await until(lambda: "waiting_for_migration" in caplog.text)
        pid = holder.info.backend_pid
    assert await waiting
    (record,) = [r for r in caplog.records if r.message == "waiting_for_migration"]
    assert "latent migrate elsewhere from " in vars(record)["holder"]
    assert f"pid {pid} in Postgres" in vars(record)["holder"]


async def test_the_wait_for_a_migration_is_bounded(
    empty_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migration, "LOCK_SECONDS", 0.2)
    with lock_taken(empty_dsn), pytest.raises(TimedOut, match="latent migrate elsewhere"):
        await migrate(empty_dsn)


async def test_a_cancellation_ends_the_wait_for_a_migration(
    empty_dsn: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(migration, "FIRST_NOTE_SECONDS", 0.0)
    with lock_taken(empty_dsn):
        waiting = asyncio.create_task(migrate(empty_dsn))
        await until(lambda: "waiting_for_migration" in caplog.text)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await current_revision(empty_dsn) is None


async def test_a_cancelled_migration_finishes_what_it_began_before_the_lock_is_free(
    empty_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade, begun = migration._upgrade, threading.Event()

    def slowly(connection: Connection) -> list[str]:
        begun.set()
        time.sleep(0.3)
        return upgrade(connection)

    monkeypatch.setattr(migration, "_upgrade", slowly)
    applying = asyncio.create_task(migrate(empty_dsn))
    await asyncio.to_thread(begun.wait)
    applying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await applying
    assert await pending(empty_dsn) == []


async def test_a_current_database_is_not_locked(dsn: str) -> None:
    with lock_taken(dsn):
        assert await migrate(dsn) == []


async def test_a_database_of_a_newer_release_is_refused(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute("UPDATE alembic_version SET version_num = '9999_later'")
    with pytest.raises(Conflict, match="9999_later"):
        await migrate(dsn)
    with pytest.raises(Conflict, match="newer"):
        await pending(dsn)


async def test_an_unreachable_server_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="Postgres is not available"):
        await migrate(f"host={tmp_path} user=nobody dbname=nothing")


def test_every_revision_follows_the_one_before_it() -> None:
    names = sorted(path.name for path in (migrations_folder() / "versions").glob("*.py"))
    assert [name[:4] for name in names] == [f"{n:04d}" for n in range(1, len(names) + 1)]
    assert names[-1].removesuffix(".py") == head_revision()
