"""The connection to Postgres: one pool per process, transactions, and the deadline of a caller.

Rows are dicts (``dict_row``): a repository reads ``row["title"]``. Hot paths that read thousands of
rows open their own cursor: ``conn.cursor(row_factory=tuple_row, binary=True)``.
``jsonb`` is written and read by orjson; timestamps are UTC.
"""

from __future__ import annotations

import asyncio
import select
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from contextvars import ContextVar
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
from psycopg.pq import Format, TransactionStatus
from psycopg.rows import DictRow, dict_row
from psycopg.types.json import set_json_dumps, set_json_loads
from psycopg_pool import AsyncConnectionPool, PoolTimeout
from typing_extensions import override

from latent_core.db.errors import unreachable
from latent_core.db.server import CONNECT_SECONDS, PostgresServer, Session
from latent_core.db.start import check_server
from latent_core.domain.errors import ReadOnlyStore, ServiceUnreachable, TimedOut

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


Connection = AsyncConnection[DictRow]
Isolation = Literal["read committed", "repeatable read", "serializable"]

CLOSE_SECONDS = 5.0
SHORTEST_WAIT: Final = 0.001
"""Also past a deadline: zero would be invalid."""
MAX_IDLE_SECONDS: Final = 30.0
"""As often, one connection of a pool is closed, if some were idle all the time: each holds 3 to 5 MB of the server's
memory."""
RETRY_READ_ONLY_SECONDS: Final = 10

CONFIGURE = """
SELECT set_config('statement_timeout', %(statement)s, false),
       set_config('lock_timeout', %(lock)s, false),
       set_config('idle_in_transaction_session_timeout', %(idle)s, false),
       set_config('timezone', 'UTC', false)
"""
IS_READ_ONLY = "SELECT current_setting('transaction_read_only')::boolean AS read_only"

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

    wait: float = 5.0
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


_DEADLINE: ContextVar[float | None] = ContextVar("the end of the caller's patience", default=None)


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Limit the calls of a ``Database`` in the block, and in tasks that it starts: after ``seconds`` they raise
    ``ServiceUnreachable``. An earlier deadline of an outer block stays."""
    at = asyncio.get_running_loop().time() + seconds
    outer = _DEADLINE.get()
    token = _DEADLINE.set(at if outer is None else min(at, outer))
    try:
        yield
    finally:
        _DEADLINE.reset(token)


class _LastUsedFirst(deque[Session]):
    """The idle connections of a pool, which takes from the left. The one that was used last has what a statement needs
    in the caches of its process and of the processor: asking ten connections in turn costs a search a seventh more."""

    @override
    def append(self, conn: Session) -> None:
        self.appendleft(conn)


class _Pool(AsyncConnectionPool[Session]):
    """Closes the idle connection that was not used for longest, which is at the right. The base class takes from the
    left."""

    @override
    async def _shrink_pool(self) -> None:
        if self._nconns > self._min_size and self._nconns_min > 0:
            self._pool.rotate(1)
        await super()._shrink_pool()


class Database:
    """A pool of connections to one database. Open it in a composition root, close it there."""

    def __init__(
        self,
        server: PostgresServer,
        pool: AsyncConnectionPool[Session],
        limits: DatabaseTimeouts,
    ) -> None:
        self.dsn = server.dsn
        self._server = server
        self._pool = pool
        self._limits = limits
        self._answered_at = 0.0

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
        server = PostgresServer(dsn)
        pool = _Pool(
            dsn,
            min_size=min_size,
            max_size=max_size,
            name=name,
            timeout=limits.wait,
            max_idle=MAX_IDLE_SECONDS,
            # Not longer than a client waits: the next client begins a fresh attempt without the
            # delays that grow while Postgres is away.
            reconnect_timeout=limits.wait,
            # A statement is a transaction of its own, unless ``transaction`` begins one.
            kwargs=_arguments(name, server) | {"autocommit": True},
            configure=lambda conn: _configure(conn, limits),
            # No ``reset``: with one, a task of its own gives back each connection.
            check=_check,
            connection_class=Session,
            open=False,
        )
        # A private name, but no option sets the order; a test checks that it has its effect.
        pool._pool = _LastUsedFirst()
        with server.noting():
            await pool.open(wait=True, timeout=limits.wait)
        return cls(server, pool, limits)

    @property
    def read_only(self) -> bool:
        """Whether the server rejects writes, as far as this process knows: it is a standby, or its disk is full."""
        return self._server.read_only.active

    @asynccontextmanager
    async def transaction(
        self, *, isolation: Isolation = "read committed", read_only: bool = False
    ) -> AsyncIterator[Connection]:
        """One transaction: commits when the block ends, rolls back when it raises."""
        async with self._pooled(writes=not read_only) as conn:
            special = isolation != "read committed" or read_only
            begun_as = _begun_as(conn, isolation, read_only) if special else nullcontext()
            async with begun_as, conn.transaction():
                yield conn

    def reading(self) -> AbstractAsyncContextManager[Connection]:
        """A connection for independent statements that read. BEGIN and COMMIT would triple the round trips for no
        gain: at "read committed" every statement takes a new snapshot anyway."""
        return self._pooled()

    def single(self) -> AbstractAsyncContextManager[Connection]:
        """A connection for one statement that writes. The statement is its transaction: one round trip instead of
        three."""
        return self._pooled()

    @asynccontextmanager
    async def _pooled(self, *, writes: bool = True) -> AsyncIterator[Connection]:
        """A connection of the pool, until the caller's deadline. ``writes``: a refused write is the server's fault."""
        at = _DEADLINE.get()
        limit = asyncio.timeout_at(at)
        with self._server.noting():
            try:
                async with limit, self._pool.connection(self._wait(at)) as conn:
                    with _refused_writes(conn) if writes else nullcontext():
                        yield conn
                    self._answered_at = asyncio.get_running_loop().time()
            except PoolTimeout as exc:
                if self._server.refusal is None:
                    raise
                raise unreachable() from exc
            except TimeoutError as exc:
                if not limit.expired():
                    raise
                if self._server.refusal is not None:
                    raise unreachable() from exc
                raise ServiceUnreachable(
                    "Postgres did not answer in time for this request: retry"
                ) from exc

    def answered_since(self, moment: float) -> bool:
        """Whether a call ended well after ``moment``, a time of the event loop: Postgres is then busy rather than away."""
        return self._answered_at > moment

    def _wait(self, at: float | None) -> float:
        """Seconds to wait for a connection."""
        if at is None:
            return self._limits.wait
        left = at - asyncio.get_running_loop().time()
        return min(self._limits.wait, max(SHORTEST_WAIT, left))

    @asynccontextmanager
    async def dedicated(self, *, name: str, autocommit: bool = True) -> AsyncIterator[Connection]:
        """A connection outside the pool, for LISTEN and heartbeats. Closed when the block ends."""
        with self._server.noting():
            conn = await Session.connect(
                self.dsn, autocommit=autocommit, **_arguments(name, self._server)
            )
            try:
                await _configure(conn, self._limits)
                with _refused_writes(conn):
                    yield conn
            finally:
                await conn.close()

    async def ping(self) -> None:
        """Check the connection, and whether the server accepts writes; raises ``Unavailable`` or ``TimedOut``."""
        try:
            async with asyncio.timeout(self._limits.wait), self.reading() as conn:
                await self._note_read_only(conn)
        except TimeoutError as exc:
            raise TimedOut(f"Postgres did not answer within {self._limits.wait:g} s") from exc

    async def _note_read_only(self, conn: Connection) -> None:
        row = await only_row(await conn.execute(IS_READ_ONLY))
        state = self._server.read_only
        if row["read_only"]:
            state.begun(READ_ONLY)
        elif state.active:
            state.succeeded()
        else:
            return
        # A connection keeps the setting that it was made with.
        await self._pool.drain()

    def stats(self) -> dict[str, int]:
        """Counters of the pool, for metrics: ``pool_size``, ``requests_waiting``, …"""
        return self._pool.get_stats()

    async def close(self) -> None:
        await self._pool.close(CLOSE_SECONDS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


READ_ONLY: Final = (
    "Postgres accepts reads only: it is a standby, its disk is full, or default_transaction_read_only is on. "
    "Check the server, then retry. Searches still work"
)


@contextmanager
def _refused_writes(conn: Connection) -> Iterator[None]:
    """``ReadOnlyStore`` when the server refuses a write in the block. The connection is closed: a new one may reach
    another server after a failover, or find the setting changed."""
    try:
        yield
    except errors.ReadOnlySqlTransaction as exc:
        conn.pgconn.finish()
        raise ReadOnlyStore(
            READ_ONLY, service="postgres", retry_after=RETRY_READ_ONLY_SECONDS
        ) from exc


def _arguments(name: str, server: PostgresServer) -> dict[str, Any]:
    return {
        "server": server,
        "row_factory": dict_row,
        "context": _adapters(),
        "application_name": f"latent {name}",
        "client_encoding": "utf8",
        "connect_timeout": CONNECT_SECONDS,
        # Prepare from the second use on: planning costs the server more than most statements.
        "prepare_threshold": 1,
        # These detect a server that disappeared without closing: on an idle connection within half a
        # minute, and after something was sent within 15 seconds.
        "keepalives_idle": 15,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 15_000,
    }


def _adapters() -> AdaptersMap:
    adapters = AdaptersMap(psycopg.adapters)
    set_json_dumps(orjson.dumps, context=adapters)
    set_json_loads(orjson.loads, context=adapters)
    register(adapters)
    return adapters


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


@asynccontextmanager
async def _begun_as(conn: Connection, isolation: Isolation, read_only: bool) -> AsyncIterator[None]:
    """A transaction in the block begins so: the connection keeps both as its own state, which becomes part of BEGIN."""
    await conn.set_isolation_level(_LEVELS[isolation])
    await conn.set_read_only(read_only or None)
    try:
        yield
    finally:
        if conn.pgconn.transaction_status == TransactionStatus.IDLE:
            await conn.set_isolation_level(None)
            await conn.set_read_only(None)
        else:  # it has lost its server, and the pool replaces it
            await conn.close()


async def only_row(cursor: AsyncCursor[DictRow]) -> DictRow:
    """The row of a statement that returns exactly one."""
    row = await cursor.fetchone()
    if row is None:
        raise RuntimeError("a statement that must return one row returned none")
    return row
