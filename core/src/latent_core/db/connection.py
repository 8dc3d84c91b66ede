"""The connection to Postgres: one pool per process, transactions, and the one place that maps errors of psycopg.

Rows are dicts (``dict_row``): a repository reads ``row["title"]``. Hot paths that read thousands of
rows open their own cursor: ``conn.cursor(row_factory=tuple_row, binary=True)``.
``jsonb`` is written and read by orjson; timestamps are UTC.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import select
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

import numpy as np
import orjson
import psycopg
from numpy.typing import NDArray
from psycopg import AsyncConnection, AsyncCursor, IsolationLevel, errors
from psycopg.abc import AdaptContext
from psycopg.adapt import AdaptersMap, Dumper
from psycopg.postgres import types
from psycopg.pq import Format
from psycopg.rows import DictRow, dict_row
from psycopg.types.json import set_json_dumps, set_json_loads
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout
from typing_extensions import override

from latent_core.domain.errors import (
    Invalid,
    LatentError,
    ServiceUnreachable,
    StoreFull,
    TimedOut,
    Unavailable,
)

BIGINT: Final = types["int8"]
HEADER: Final = np.dtype(">i4")
ITEM: Final = np.dtype([("length", ">i4"), ("value", ">i8")])
ITEM_BYTES: Final = 8


class BigintArrayDumper(Dumper):
    """A vector of integers as ``bigint[]``, in Postgres's binary format of arrays (``array_send``)."""

    format = Format.BINARY
    oid = BIGINT.array_oid

    @override
    def dump(self, obj: NDArray[np.integer]) -> bytes:
        if obj.ndim != 1 or obj.dtype.kind not in "iu":
            raise TypeError(
                f"expected a vector of integers, got {obj.dtype} of {obj.ndim} dimensions"
            )
        items = np.empty(len(obj), ITEM)
        items["length"] = ITEM_BYTES
        items["value"] = obj
        # Dimensions, whether one is NULL, the type of the items, their number, the first one's index.
        empty = not len(obj)
        header = [0, 0, BIGINT.oid] if empty else [1, 0, BIGINT.oid, len(obj), 1]
        return np.array(header, HEADER).tobytes() + items.tobytes()


def register(context: AdaptContext) -> None:
    """Let ``context`` send numpy vectors of integers."""
    context.adapters.register_dumper(np.ndarray, BigintArrayDumper)


logger = logging.getLogger(__name__)

Connection = AsyncConnection[DictRow]
Isolation = Literal["read committed", "repeatable read", "serializable"]

OLDEST_SERVER = 160000  # DESIGN §2: Postgres 16+
CONNECT_SECONDS = 10
CLOSE_SECONDS = 5.0

CONFIGURE = """
SELECT set_config('statement_timeout', %(statement)s, false),
       set_config('lock_timeout', %(lock)s, false),
       set_config('idle_in_transaction_session_timeout', %(idle)s, false),
       set_config('timezone', 'UTC', false)
"""
PING = "SELECT 1"

_LEVELS: dict[Isolation, IsolationLevel | None] = {
    "read committed": None,  # the server's default: BEGIN needs no option
    "repeatable read": IsolationLevel.REPEATABLE_READ,
    "serializable": IsolationLevel.SERIALIZABLE,
}


@dataclass(frozen=True, slots=True)
class DatabaseTimeouts:
    """Time limits of the server and the pool, in seconds.

    ``statement`` limits each statement; a longer one sets ``SET LOCAL statement_timeout`` itself.
    """

    wait: float = 10.0
    statement: float = 60.0
    lock: float = 15.0
    idle_in_transaction: float = 60.0

    def parameters(self) -> dict[str, str]:
        return {
            "statement": _milliseconds(self.statement),
            "lock": _milliseconds(self.lock),
            "idle": _milliseconds(self.idle_in_transaction),
        }


DEFAULT_LIMITS = DatabaseTimeouts()


def _milliseconds(seconds: float) -> str:
    return f"{max(1, round(seconds * 1000))}ms"


class Database:
    """A pool of connections to one database. Open it in a composition root, close it there."""

    def __init__(
        self, dsn: str, pool: AsyncConnectionPool[Connection], limits: DatabaseTimeouts
    ) -> None:
        self.dsn = dsn
        self._pool = pool
        self._limits = limits

    @classmethod
    async def open(
        cls,
        dsn: str,
        *,
        min_size: int = 1,
        max_size: int = 10,
        name: str = "gateway",
        limits: DatabaseTimeouts = DEFAULT_LIMITS,
    ) -> Self:
        """Raises ``Unavailable`` when the server cannot be reached, ``Invalid`` when it cannot be used."""
        await check_server(dsn)
        pool = AsyncConnectionPool(
            dsn,
            min_size=min_size,
            max_size=max_size,
            name=name,
            timeout=limits.wait,
            # Not longer than a client waits: the next client begins a fresh attempt without the
            # delays that grow while Postgres is away.
            reconnect_timeout=limits.wait,
            # A statement is a transaction of its own, unless ``transaction`` begins one.
            kwargs=_arguments(name) | {"autocommit": True},
            configure=lambda conn: _configure(conn, limits),
            check=_check,
            reset=_reset,
            connection_class=AsyncConnection[DictRow],
            open=False,
        )
        with mapped_errors():
            await pool.open(wait=True, timeout=limits.wait)
        return cls(dsn, pool, limits)

    @asynccontextmanager
    async def transaction(
        self, *, isolation: Isolation = "read committed", read_only: bool = False
    ) -> AsyncIterator[Connection]:
        """One transaction: commits when the block ends, rolls back when it raises."""
        with mapped_errors():
            async with self._pool.connection() as conn:
                if isolation != "read committed" or read_only:
                    # Client-side state that becomes part of BEGIN; _reset clears it.
                    await conn.set_isolation_level(_LEVELS[isolation])
                    await conn.set_read_only(read_only or None)
                async with conn.transaction():
                    yield conn

    def reading(self) -> AbstractAsyncContextManager[Connection]:
        """A connection for independent statements that read. BEGIN and COMMIT would triple the round trips for no
        gain: at "read committed" every statement takes a new snapshot anyway."""
        return self._connected()

    def single(self) -> AbstractAsyncContextManager[Connection]:
        """A connection for one statement that writes. The statement is its transaction: one round trip instead of
        three."""
        return self._connected()

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Connection]:
        with mapped_errors():
            async with self._pool.connection() as conn:
                yield conn

    @asynccontextmanager
    async def dedicated(self, *, name: str, autocommit: bool = True) -> AsyncIterator[Connection]:
        """A connection outside the pool, for LISTEN and heartbeats. Closed when the block ends."""
        with mapped_errors():
            conn = await AsyncConnection.connect(
                self.dsn, autocommit=autocommit, **_arguments(name)
            )
            try:
                await _configure(conn, self._limits)
                yield conn
            finally:
                await conn.close()

    async def ping(self) -> None:
        """Check the connection; raises ``Unavailable`` or ``TimedOut``."""
        try:
            async with asyncio.timeout(self._limits.wait), self.transaction(read_only=True) as conn:
                await conn.execute(PING)
        except TimeoutError as exc:
            raise TimedOut(f"Postgres did not answer within {self._limits.wait:g} s") from exc

    def stats(self) -> dict[str, int]:
        """Counters of the pool, for metrics: ``pool_size``, ``requests_waiting``, …"""
        return self._pool.get_stats()

    async def close(self) -> None:
        await self._pool.close(CLOSE_SECONDS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


def _arguments(name: str) -> dict[str, Any]:
    return {
        "row_factory": dict_row,
        "context": _adapters(),
        "application_name": f"latent {name}",
        "client_encoding": "utf8",
        "connect_timeout": CONNECT_SECONDS,
        # Prepare from the second use on: planning costs the server more than most statements.
        "prepare_threshold": 1,
        # Keepalives detect within half a minute a server that disappeared without closing.
        "keepalives_idle": 15,
        "keepalives_interval": 5,
        "keepalives_count": 3,
    }


def _adapters() -> AdaptersMap:
    adapters = AdaptersMap(psycopg.adapters)
    set_json_dumps(orjson.dumps, context=adapters)
    set_json_loads(orjson.loads, context=adapters)
    register(adapters)
    return adapters


async def check_server(dsn: str) -> None:
    """``Unavailable`` when the server cannot be reached, ``Invalid`` when it is too old.

    The pool only logs why it cannot connect; one plain attempt gives the user the reason.
    """
    try:
        with mapped_errors():
            conn = await AsyncConnection.connect(dsn, connect_timeout=CONNECT_SECONDS)
    except psycopg.ProgrammingError as exc:
        raise Invalid(f"the Postgres DSN (LLC_POSTGRES_DSN) is invalid: {exc}") from exc
    async with conn:
        version = conn.info.server_version
    if version < OLDEST_SERVER:
        raise Invalid(f"Postgres {version // 10000} is too old: use version 16 or newer")


async def _configure(conn: Connection, limits: DatabaseTimeouts) -> None:
    await conn.execute(CONFIGURE, limits.parameters())
    if not conn.autocommit:
        await conn.commit()


async def _check(conn: Connection) -> None:
    """A healthy idle connection has no data to read. If it has some, the server closed it or sent a message:
    only then a round trip checks the connection."""
    poll = select.poll()
    poll.register(conn.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
    if poll.poll(0):
        await AsyncConnectionPool.check_connection(conn)


async def _reset(conn: Connection) -> None:
    if conn.isolation_level is not None or conn.read_only is not None:
        await conn.set_isolation_level(None)
        await conn.set_read_only(None)


async def only_row(cursor: AsyncCursor[DictRow]) -> DictRow:
    """The row of a statement that returns exactly one."""
    row = await cursor.fetchone()
    if row is None:
        raise RuntimeError("a statement that must return one row returned none")
    return row


@contextmanager
def mapped_errors() -> Iterator[None]:
    """Map psycopg's errors to ``LatentError`` with their cause. Errors that a repository must handle itself
    (violated constraints, wrong SQL) pass unchanged."""
    try:
        yield
    except psycopg.Error as exc:
        mapped = translate(exc)
        if mapped is None:
            raise
        raise mapped from exc
    except (
        UnicodeEncodeError
    ) as exc:  # raised by psycopg before it sends the statement: a lone surrogate
        raise Invalid(
            "a text contains a lone surrogate, which is not valid Unicode: remove it"
        ) from exc


def translate(exc: psycopg.Error) -> LatentError | None:
    """The ``LatentError`` for an error of psycopg, or None if the caller must handle it."""
    quotes = isinstance(exc, psycopg.DataError | psycopg.IntegrityError | psycopg.ProgrammingError)
    if isinstance(exc, errors.DiskFull) or (os.strerror(errno.ENOSPC) in str(exc) and not quotes):
        return StoreFull(
            "the disk of Postgres is full: free disk space, then retry", service="postgres"
        )
    if isinstance(exc, errors.QueryCanceled | errors.LockNotAvailable):
        return TimedOut(f"Postgres cancelled the statement: {_first_line(exc)}")
    if isinstance(exc, errors.IdleInTransactionSessionTimeout):
        return TimedOut("Postgres ended the transaction because it was idle for too long")
    if isinstance(exc, PoolTimeout):
        return ServiceUnreachable("no connection to Postgres became free in time: retry")
    if isinstance(exc, PoolClosed):
        return ServiceUnreachable("the process is shutting down")
    if isinstance(exc, psycopg.DataError | errors.ProgramLimitExceeded):
        return Invalid(f"Postgres cannot store a value: {_first_line(exc)}")
    if isinstance(exc, errors.TransactionRollback | errors.OutOfMemory):
        return Unavailable(f"Postgres ended the transaction: {_first_line(exc)}")
    if isinstance(exc, errors.FeatureNotSupported) and "cached plan" in str(exc):
        return Unavailable("the database schema changed during the statement: retry")
    if isinstance(exc, psycopg.OperationalError) or _is_lost(exc):
        # The cause contains sockets and hosts, which the message must not show.
        logger.warning("postgres_not_available", extra={"cause": _first_line(exc)})
        return ServiceUnreachable(
            "Postgres is not available; see postgres_not_available in the log for the cause"
        )
    return None


def _is_lost(exc: psycopg.Error) -> bool:
    # The only InterfaceError that is not a programming error: the connection broke earlier.
    return isinstance(exc, psycopg.InterfaceError) and "connection is" in str(exc)


def _first_line(exc: psycopg.Error) -> str:
    return str(exc).strip().partition("\n")[0]
