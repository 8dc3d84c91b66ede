"""The schema: Alembic revisions in plain SQL (``migrations/``), applied and compared.

Alembic is synchronous and keeps its context in module globals, so it runs in a thread, one at a time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, TypeVar

import psycopg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.script.revision import RevisionError
from alembic.util import CommandError
from psycopg.rows import dict_row
from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from latent_core.db.errors import mapped_errors
from latent_core.db.schema import migrations_folder
from latent_core.db.server import CONNECT_SECONDS, Session
from latent_core.db.start import check_server
from latent_core.domain.errors import Conflict, TimedOut, Unavailable
from latent_core.domain.versions import too_old

logger = logging.getLogger(__name__)

LOCK_KEY: Final = 0x6C6174656E74  # "latent"
LOCK_SECONDS: Final = 300.0
FIRST_NOTE_SECONDS: Final = 1.0
SECONDS_BETWEEN_NOTES: Final = 30.0
_LOCK_POLL_SECONDS: Final = 0.1

APPLICATION: Final = f"latent migrate {socket.gethostname()} {os.getpid()}"[:63]
"""Postgres shows it to those that wait."""

BEFORE_INITIAL = re.compile(r"\d{4}")
"""Revisions that were folded into ``0001_initial`` had numbers alone."""

TRY_LOCK: Final = "SELECT pg_try_advisory_lock(%(key)s) AS taken"

LOCK_HOLDER: Final = """
SELECT a.pid, coalesce(host(a.client_addr), 'this machine') AS client, a.application_name AS application,
       round(extract(epoch FROM clock_timestamp() - a.backend_start))::integer AS seconds
FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (l.classid::bigint << 32) | l.objid::bigint = %(key)s
"""

_ALEMBIC = threading.Lock()  # protects Alembic's module globals

T = TypeVar("T")


async def migrate(dsn: str) -> list[str]:
    """Bring the database to the newest revision; returns the applied revisions, oldest first.

    Several processes may call it at once: one migrates, the others wait (at most five minutes). A cancellation ends
    the wait; revisions that are being applied are finished first. Raises ``Conflict`` when the database was migrated
    by a newer release, or by one from before the initial revision, ``Invalid`` when the server itself is too old.
    """
    await check_server(dsn)
    if not await pending(
        dsn
    ):  # nothing to write: a standby, or a migration that is done, delays no start
        return []
    with mapped_errors():
        async with _only_one(dsn):
            applied = await _finished(asyncio.to_thread(_with_connection, dsn, _upgrade))
    if applied:
        logger.info("database_migrated", extra={"revisions": applied})
    return applied


async def current_revision(dsn: str) -> str | None:
    """The revision the database is at; None when it is empty. ``Conflict`` for one from before the initial revision.

    Writes nothing.
    """
    return await asyncio.to_thread(_with_connection, dsn, _current)


async def pending(dsn: str) -> list[str]:
    """Revisions that ``migrate`` would apply, oldest first."""
    return await asyncio.to_thread(_with_connection, dsn, _pending)


def head_revision() -> str:
    """The newest revision of this release."""
    head = _scripts().get_current_head()
    if head is None:
        raise Unavailable(f"no migrations in {migrations_folder()}: the installation is incomplete")
    return head


async def _finished(work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, also if the caller is cancelled meanwhile: its thread cannot be, and needs the lock."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    finally:
        await asyncio.wait({task})


def _with_connection(dsn: str, work: Callable[[Connection], T]) -> T:
    # A creator, since SQLAlchemy's URLs cannot express every conninfo (Unix sockets).
    engine = create_engine(
        "postgresql+psycopg://",
        creator=lambda: psycopg.connect(
            dsn, connect_timeout=CONNECT_SECONDS, application_name=APPLICATION
        ),
        poolclass=NullPool,
    )
    with mapped_errors(), _unwrapped(), _ALEMBIC, engine.connect() as connection:
        return work(connection)


def _upgrade(connection: Connection) -> list[str]:
    applied = _pending(connection)
    connection.rollback()  # Alembic begins its own transactions
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    return applied


def _pending(connection: Connection) -> list[str]:
    revisions = _scripts().iterate_revisions(head_revision(), _current(connection) or "base")
    return [script.revision for script in revisions][::-1]


def _current(connection: Connection) -> str | None:
    revision = MigrationContext.configure(connection).get_current_revision()
    if revision is not None and BEFORE_INITIAL.fullmatch(revision):
        raise too_old("the database", "LLC_POSTGRES_DSN, LLC_QDRANT_URL, LLC_S3_BUCKET")
    return revision


def _config() -> Config:
    config = Config()
    # Alembic interpolates like configparser.
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    return config


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


@contextmanager
def _unwrapped() -> Iterator[None]:
    """Unwrap psycopg's errors from SQLAlchemy's, and map Alembic's."""
    try:
        yield
    except DBAPIError as exc:
        if exc.orig is None:
            raise
        raise exc.orig from exc
    except (CommandError, RevisionError) as exc:
        raise Conflict(
            f"this release cannot use the database: {exc}. A newer release has migrated it: install that release, or "
            "go back to the copy from before the upgrade (docs/upgrade.md)"
        ) from exc


@asynccontextmanager
async def _only_one(dsn: str) -> AsyncIterator[None]:
    """Hold the advisory lock. Polled, since a waiting statement keeps a snapshot open and CREATE INDEX
    CONCURRENTLY in the lock's holder would wait for it for ever."""
    conn = await Session.connect(
        dsn,
        autocommit=True,
        row_factory=dict_row,
        connect_timeout=CONNECT_SECONDS,
        application_name=APPLICATION,
    )
    async with conn:
        await _take_lock(conn)
        yield


async def _take_lock(conn: Session) -> None:
    begun = time.monotonic()
    note_at = begun + FIRST_NOTE_SECONDS
    while not await _try_lock(conn):
        now = time.monotonic()
        if now > begun + LOCK_SECONDS:
            raise TimedOut(
                f"another process is still migrating the database ({await _holder(conn)}): retry later"
            )
        if now > note_at:
            note_at = now + SECONDS_BETWEEN_NOTES
            logger.warning(
                "waiting_for_migration",
                extra={"holder": await _holder(conn), "seconds": round(now - begun)},
            )
        await asyncio.sleep(_LOCK_POLL_SECONDS)


async def _try_lock(conn: Session) -> bool:
    row = await (await conn.execute(TRY_LOCK, {"key": LOCK_KEY})).fetchone()
    return row is not None and bool(row["taken"])


async def _holder(conn: Session) -> str:
    """The process that migrates, as Postgres sees it."""
    row = await (await conn.execute(LOCK_HOLDER, {"key": LOCK_KEY})).fetchone()
    if row is None:
        return "it has just ended"
    return "{application} from {client}, pid {pid} in Postgres, for {seconds} s".format(**row)
