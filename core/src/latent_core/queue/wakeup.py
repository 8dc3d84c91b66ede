"""Wake idle workers when there is work: a hint in addition to polling.

NOTIFY takes a database-wide lock until its transaction ends, so it is never part of a transaction that
writes: it is sent on its own connection, and rate-limited.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self
from uuid import uuid4

from latent_core.db.connection import Connection, Database
from latent_core.domain.errors import LatentError, TimedOut
from latent_core.queue import clock
from latent_core.runtime.tasks import ended
from latent_core.telemetry.outage import OutageLog

logger = logging.getLogger(__name__)

DEBOUNCE_SECONDS: Final = 0.05
PING_SECONDS: Final = 2.5
DEAF_SECONDS: Final = 5.0
RECONNECT_SECONDS: Final = 1.0

# A ping needs no fsync: an idle machine's disk may sleep.
LISTEN: Final = "SET synchronous_commit = off; LISTEN latent_jobs"
NOTIFY: Final = "SELECT pg_notify('latent_jobs', %(payload)s)"
WORK: Final = "work"


class Wakeup:
    """Notifies all workers of committed jobs. Call ``wake`` in the event loop's thread."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._requested = asyncio.Event()
        self._outages = OutageLog(
            logger, failed="job_notify_failed", recovered="job_notify_recovered"
        )
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="wakeup")
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._task is not None:
            await ended(self._task)

    def wake(self) -> None:
        """Call after the commit. Many calls are sent as one notification."""
        self._requested.set()

    async def _run(self) -> None:
        while True:
            await self._requested.wait()
            try:
                async with self._db.dedicated(name="wakeup") as conn:
                    await self._send_while_connected(conn)
            except LatentError as exc:
                self._outages.failed(str(exc))
                await asyncio.sleep(RECONNECT_SECONDS)
                self._requested.set()

    async def _send_while_connected(self, conn: Connection) -> None:
        while True:
            await self._requested.wait()
            self._requested.clear()
            await conn.execute(NOTIFY, {"payload": WORK})
            self._outages.succeeded()
            await asyncio.sleep(DEBOUNCE_SECONDS)


class Listener:
    """Calls ``on_wake`` whenever there may be work; always reconnects.

    It sends pings to itself and must receive them: a connection that looks open may have been dead for hours.
    """

    def __init__(
        self,
        db: Database,
        on_wake: Callable[[], None],
        *,
        ping_seconds: float = PING_SECONDS,
        deaf_seconds: float = DEAF_SECONDS,
    ) -> None:
        self._db = db
        self._on_wake = on_wake
        self._ping_seconds = ping_seconds
        self._deaf_seconds = deaf_seconds
        self._token = f"ping {uuid4()}"
        self._outages = OutageLog(
            logger, failed="job_listen_failed", recovered="job_listen_recovered"
        )

    async def run(self) -> None:
        """Listen until cancelled."""
        while True:
            try:
                async with self._db.dedicated(name="listener") as conn:
                    await self._listen(conn)
            except (LatentError, TimeoutError) as exc:
                self._outages.failed(str(exc))
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _listen(self, conn: Connection) -> None:
        async with asyncio.timeout(self._deaf_seconds):
            await conn.execute(LISTEN)
        self._on_wake()  # for notifications sent before we listened
        heard_at = clock.now()
        while clock.now() - heard_at < self._deaf_seconds:
            async with asyncio.timeout(self._deaf_seconds):
                await conn.execute(NOTIFY, {"payload": self._token})
            async for note in conn.notifies(timeout=self._ping_seconds):
                if note.payload == WORK:
                    self._on_wake()
                elif note.payload == self._token:
                    heard_at = clock.now()
                    self._outages.succeeded()
        raise TimedOut(f"the listener received none of its own pings for {self._deaf_seconds:g} s")
