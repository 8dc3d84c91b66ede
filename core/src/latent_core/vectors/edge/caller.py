"""Calls of the vector child, also while it is replaced.

A call in flight is sent once more to the new child, within its deadline: every request is repeatable, since upserts
and deletes are by id. A child that answers neither a call nor a ping is stuck: it is killed, and its owner replaces it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Generic, Self, TypeVar

from latent_core.domain.errors import LatentError, ServiceUnreachable, TimedOut, Unavailable
from latent_core.vectors.edge.link import EngineConnection, LinkLostError
from latent_core.vectors.edge.protocol import VectorOp, VectorReply

logger = logging.getLogger(__name__)

C = TypeVar("C", bound=EngineConnection)
GRACE_SECONDS: Final = 10.0
"""For a ping, after a call timed out."""
GREETING_SECONDS: Final = 60.0
PAUSES_SECONDS: Final = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class EngineCaller(Generic[C]):
    """Calls over the current connection, which a subclass keeps. ``close`` ends it."""

    def __init__(self, grace_seconds: float = GRACE_SECONDS) -> None:
        self.restarts = 0
        """How often a dead child was replaced."""
        self._grace_seconds = grace_seconds
        self._link: C | None = None
        self._running = asyncio.Event()
        self._cause = "it has not started yet"
        self._pings: dict[C, asyncio.Task[None]] = {}
        self._keeper: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The current child's pid."""
        return self._link.pid if self._link is not None else None

    async def call(
        self, op: VectorOp, seconds: float, collection: str, args: dict[str, Any], body: bytes
    ) -> VectorReply:
        """The child's answer, within ``seconds``. Raises ``TimedOut``, or ``Unavailable``."""
        deadline = time.monotonic() + seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._ask_twice(op, deadline, collection, args, body)
        except TimeoutError as exc:
            raise self._late(op, seconds) from exc

    async def close(self) -> None:
        """Flush and stop the child. Later calls raise ``Unavailable``."""
        if self._closed:
            return
        self._closed = True
        self._cause = "it is closed"
        if self._keeper is not None:
            self._keeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeper
        for ping in self._pings.values():
            ping.cancel()
        if (link := self._link) is not None:
            self._withdraw()
            await self._stop(link)

    async def _stop(self, link: C) -> None:
        """End the connection."""
        await link.close()

    async def _ask_twice(
        self, op: VectorOp, deadline: float, collection: str, args: dict[str, Any], body: bytes
    ) -> VectorReply:
        with suppress(LinkLostError):
            return await self._ask(op, deadline, collection, args, body)
        try:
            return await self._ask(op, deadline, collection, args, body)
        except LinkLostError as exc:
            raise Unavailable(
                f"the vector engine ended twice during one call ({self._cause}): try again"
            ) from exc

    async def _ask(
        self, op: VectorOp, deadline: float, collection: str, args: dict[str, Any], body: bytes
    ) -> VectorReply:
        link = await self._ready()
        try:
            return await link.ask(op, deadline, collection, args, body)
        except asyncio.CancelledError:
            self._suspect(link)
            raise
        except LinkLostError:
            if self._link is link:
                self._withdraw()  # ``_keep`` may not have noticed yet
            raise

    async def _ready(self) -> C:
        while self._link is None:
            if self._closed:
                raise ServiceUnreachable("the vector engine is closed")
            await self._running.wait()
        return self._link

    def _late(self, op: VectorOp, seconds: float) -> LatentError:
        if self._running.is_set():
            return TimedOut(f"the vector engine did not answer {op} within {seconds:g} s")
        return ServiceUnreachable(f"the vector engine is not running ({self._cause}): try again")

    def _suspect(self, link: C) -> None:
        """After a timeout: check whether the child still answers."""
        if link not in self._pings and not self._closed:
            self._pings[link] = asyncio.create_task(self._ping(link))

    async def _ping(self, link: C) -> None:
        checked_at = time.monotonic()
        try:
            async with asyncio.timeout(self._grace_seconds):
                await link.ask(VectorOp.PING, checked_at + self._grace_seconds, "", {}, b"")
        except TimeoutError:
            if link.heard_at < checked_at:  # otherwise we were too busy to listen
                logger.warning("vector_child_hangs", extra={"pid": link.pid})
                link.kill()
        except LinkLostError:
            return
        finally:
            del self._pings[link]

    def _publish(self, link: C) -> None:
        self._link = link
        self._running.set()

    def _withdraw(self) -> None:
        self._link = None
        self._running.clear()


class EngineClient(EngineCaller[EngineConnection]):
    """Calls the child of another process, by the socket that it listens on. The owner alone starts and closes it."""

    def __init__(self, address: Path) -> None:
        super().__init__()
        self._address = address

    @classmethod
    async def open(cls, address: Path) -> Self:
        """``Unavailable`` if the owner is gone."""
        client = cls(address)
        try:
            link = await client._connect()
        except (LinkLostError, OSError) as exc:
            raise Unavailable(f"the vector engine cannot be reached: {exc}") from exc
        client._publish(link)
        client._keeper = asyncio.create_task(client._keep(link), name="vector-connection")
        return client

    async def _connect(self) -> EngineConnection:
        """Waits for a child that is starting: connections to the socket queue up."""
        link = await EngineConnection.connect(self._address)
        try:
            async with asyncio.timeout(GREETING_SECONDS):
                await link.greeted()
        except TimeoutError as exc:
            await link.close()
            raise LinkLostError("no greeting") from exc
        except BaseException:
            await link.close()
            raise
        return link

    async def _keep(self, link: EngineConnection) -> None:
        """Connect again whenever the child ends."""
        attempt = 0
        while True:
            await link.ended()
            self._withdraw()
            self._cause = "it ended"
            while (again := await self._reconnected(attempt)) is None:
                attempt += 1
            attempt, link = 0, again
            self.restarts += 1
            self._publish(link)

    async def _reconnected(self, attempt: int) -> EngineConnection | None:
        await asyncio.sleep(PAUSES_SECONDS[min(attempt, len(PAUSES_SECONDS) - 1)])
        try:
            return await self._connect()
        except (LinkLostError, OSError) as exc:
            logger.info("vector_child_not_connected", extra={"cause": str(exc)})
            return None
