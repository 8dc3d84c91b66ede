"""The Postgres server as this process finds it, and sessions that do not wait for a server that stopped answering.

A frozen server keeps its connections open: without a limit of our own, a statement would wait for ever. A statement
that takes long is no proof, so a silent one is given up only when a new connection gets no answer either.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Self, TypeVar

import psycopg
from psycopg import AsyncConnection, errors, waiting
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus
from psycopg.rows import DictRow
from psycopg_pool import PoolClosed, PoolTimeout
from typing_extensions import override

from latent_core.db.errors import first_line, mapped_errors
from latent_core.domain.errors import ReadOnlyStore, ServiceUnreachable
from latent_core.telemetry.outage import OutageLog

logger = logging.getLogger(__name__)

T = TypeVar("T")

CONNECT_SECONDS: Final = 5
SILENT_SECONDS: Final = 5.0
"""A statement without an answer for so long makes us ask whether the server answers at all."""
PROBE_SECONDS: Final = 2.0
CANCEL_SECONDS: Final = 0.2
"""For the server to confirm a cancelled statement. After that its connection is closed."""
POLL_SECONDS: Final = 0.1

PING: Final = "SELECT 1"


class PostgresServer:
    """The server behind a DSN, with one log line for the begin and the end of each of its outages."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.unreachable = OutageLog(
            logger, failed="postgres_unreachable", recovered="postgres_reachable"
        )
        self.read_only = OutageLog(
            logger, failed="postgres_read_only", recovered="postgres_writable"
        )
        self.refusal: str | None = None
        """Why the last attempt to connect failed; None if it succeeded."""
        self._probe: asyncio.Task[bool] | None = None

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Map psycopg's errors, and note whether the server answered."""
        try:
            with mapped_errors():
                yield
        except ReadOnlyStore as error:
            self.read_only.failed(error.message)
            raise
        except ServiceUnreachable as error:
            self._note(error.__cause__)
            raise
        else:
            self.unreachable.succeeded()

    def _note(self, cause: BaseException | None) -> None:
        match cause:
            case PoolClosed():
                pass
            case PoolTimeout():
                if self.refusal is not None:  # otherwise the pool is only busy
                    self.unreachable.failed(self.refusal)
            case psycopg.Error():
                self.unreachable.failed(first_line(cause))

    async def answers(self) -> bool:
        """Whether it answers a new connection in time. Concurrent callers share one attempt."""
        probe = self._probe
        if probe is None or probe.done():
            probe = self._probe = asyncio.create_task(self._probed(), name="postgres-probe")
        # A caller that is cancelled does not cancel it for the others.
        return await asyncio.shield(probe)

    async def _probed(self) -> bool:
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                conn = await Session.connect(self.dsn, autocommit=True)
                try:
                    await conn.execute(PING)
                finally:
                    await conn.close()
        except TimeoutError:
            self.unreachable.failed(f"a new connection got no answer within {PROBE_SECONDS:g} s")
            return False
        except psycopg.Error:
            # An error is an answer, too. The connection of a server that has ended breaks by itself.
            return True
        return True


class Session(AsyncConnection[DictRow]):
    """A connection whose waits end when the server stops answering."""

    server: PostgresServer | None = None
    """None: its waits have no limit of their own."""

    @classmethod
    @override
    async def connect(  # type: ignore[override]  # the other keywords are libpq's
        cls, conninfo: str = "", *, server: PostgresServer | None = None, **kwargs: Any
    ) -> Self:
        try:
            conn = await super().connect(conninfo, **kwargs)
        except psycopg.OperationalError as exc:
            if server is not None:
                server.refusal = first_line(exc)
            raise
        if server is not None:
            conn.server, server.refusal = server, None
        return conn

    @override
    async def wait(
        self, gen: PQGen[T], interval: float = POLL_SECONDS, timeout: float | None = None
    ) -> T:
        """As the base class, which waits ten seconds for a cancelled statement, and without limit for any other."""
        if self.server is None:
            return await self._answer(gen, interval, timeout)
        silence = asyncio.timeout(None)
        try:
            async with silence:
                watch = _Watch(self.server, silence)
                try:
                    return await self._answer(gen, interval, timeout)
                finally:
                    watch.end()
        except TimeoutError as exc:
            if not silence.expired():
                raise
            raise psycopg.OperationalError("the server stopped answering") from exc

    async def _answer(self, gen: PQGen[T], interval: float, seconds: float | None) -> T:
        try:
            return await waiting.wait_async(
                gen, self.pgconn.socket, interval=interval, timeout=seconds
            )
        except asyncio.CancelledError:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                await self._abandon(gen)
            raise

    async def _abandon(self, gen: PQGen[T]) -> None:
        """Cancel the statement on the server. A connection in an unknown state is closed."""
        try:
            async with asyncio.timeout(CANCEL_SECONDS):
                await self.cancel_safe(timeout=CANCEL_SECONDS)
                await waiting.wait_async(gen, self.pgconn.socket, interval=POLL_SECONDS)
        except errors.QueryCanceled:
            return
        except (psycopg.Error, TimeoutError):
            self.pgconn.finish()
        except asyncio.CancelledError:
            self.pgconn.finish()
            raise


class _Watch:
    """Ends a wait when the server answers neither it nor a new connection."""

    def __init__(self, server: PostgresServer, silence: asyncio.Timeout) -> None:
        self._server = server
        self._silence = silence
        self._loop = asyncio.get_running_loop()
        self._inquiry: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(SILENT_SECONDS, self._suspect)

    def end(self) -> None:
        self._timer.cancel()
        if self._inquiry is not None:
            self._inquiry.cancel()

    def _suspect(self) -> None:
        self._inquiry = self._loop.create_task(self._inquire(), name="postgres-silent")

    async def _inquire(self) -> None:
        while True:
            if not await self._server.answers():
                self._silence.reschedule(self._loop.time())
                return
            await asyncio.sleep(SILENT_SECONDS)
