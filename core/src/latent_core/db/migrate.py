"""The schema: Alembic revisions in plain SQL (``migrations/``), applied and compared.

Alembic is synchronous and keeps its context in module globals, so it runs in a thread, one at a time.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import psycopg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.script.revision import RevisionError
from alembic.util import CommandError
from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from latent_core.db.connection import CONNECT_SECONDS, check_server, mapped_errors
from latent_core.db.schema import migrations_folder
from latent_core.domain.errors import Conflict, TimedOut, Unavailable
from latent_core.domain.versions import too_old

LOCK_KEY = 0x6C6174656E74  # "latent"
LOCK_SECONDS = 300.0
_LOCK_POLL_SECONDS = 0.1

BEFORE_INITIAL = re.compile(r"\d{4}")
"""Revisions that were folded into ``0001_initial`` had numbers alone."""

TRY_LOCK = "SELECT pg_try_advisory_lock(%(key)s)"

_ALEMBIC = threading.Lock()  # protects Alembic's module globals

T = TypeVar("T")


async def migrate(dsn: str) -> list[str]:
    """Bring the database to the newest revision; returns the applied revisions, oldest first.

    Several processes may call it at once: one migrates, the others wait (at most five minutes). Raises ``Conflict`` when the database was migrated by a newer release, or by one from before the
    initial revision, ``Invalid`` when the server itself is too old.
    """
    await check_server(dsn)
    return await asyncio.to_thread(_migrate, dsn)


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


def _migrate(dsn: str) -> list[str]:
    with mapped_errors(), _only_one(dsn):
        return _with_connection(dsn, _upgrade)


def _with_connection(dsn: str, work: Callable[[Connection], T]) -> T:
    # A creator, since SQLAlchemy's URLs cannot express every conninfo (Unix sockets).
    engine = create_engine(
        "postgresql+psycopg://",
        creator=lambda: psycopg.connect(dsn, connect_timeout=CONNECT_SECONDS),
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
            f"this release cannot migrate the database: {exc}. A newer release may have migrated it before"
        ) from exc


@contextmanager
def _only_one(dsn: str) -> Iterator[None]:
    """Hold the advisory lock. Polled, since a waiting statement keeps a snapshot open and CREATE INDEX
    CONCURRENTLY in the lock's holder would wait for it for ever."""
    deadline = time.monotonic() + LOCK_SECONDS
    with psycopg.connect(dsn, autocommit=True, connect_timeout=CONNECT_SECONDS) as conn:
        while not _try_lock(conn):
            if time.monotonic() > deadline:
                raise TimedOut("another process is still migrating the database: retry later")
            time.sleep(_LOCK_POLL_SECONDS)
        yield


def _try_lock(conn: psycopg.Connection) -> bool:
    row = conn.execute(TRY_LOCK, {"key": LOCK_KEY}).fetchone()
    return row is not None and bool(row[0])
