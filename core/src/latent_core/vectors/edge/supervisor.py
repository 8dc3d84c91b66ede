"""Keeps one vector child running, and repeats calls after its death.

A dead child is restarted at once, later with growing pauses. A call in flight is sent once more to the new child,
within its deadline: every request is repeatable, since upserts and deletes are by id. A child that answers neither
a call nor a ping is stuck: it is killed and replaced.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from latent_core.domain.errors import LatentError, ServiceUnreachable, TimedOut, Unavailable
from latent_core.vectors.edge.folder_owner import wait_until_free
from latent_core.vectors.edge.link import Link, LinkLostError
from latent_core.vectors.edge.protocol import BUSY_BYTES, BUSY_FILE, VectorOp, VectorReply

logger = logging.getLogger(__name__)

_PAUSES_SECONDS: Final = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_HEALTHY_SECONDS: Final = 10.0
"""A child that lived this long resets the pauses."""
_CRASHES_ALLOWED: Final = 2
"""Crashes of the engine on one collection before it is no longer opened."""
_STOP_SECONDS: Final = 10.0
_PANIC_STATUS: Final = 1
_CRASH_SIGNALS: Final = (
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGABRT,
    signal.SIGILL,
    signal.SIGFPE,
)
_CRASHES: Final = frozenset({_PANIC_STATUS, *(-signum for signum in _CRASH_SIGNALS)})
"""Exit statuses of a crash, not of a process that was ended."""


@dataclass(frozen=True, slots=True)
class SupervisorTimeouts:
    """Timeouts in seconds."""

    start: float = 60.0
    """For a new child's greeting."""
    grace: float = 10.0
    """For a ping, after a call timed out."""
    leftover: float = 3.0
    """For a child of an earlier owner to end by itself after its current call."""


class Supervisor:
    """One running child on ``folder``, until ``close``."""

    def __init__(self, folder: Path, options: Sequence[str], timeouts: SupervisorTimeouts) -> None:
        self.restarts = 0
        """How often a dead child was replaced."""
        self._folder = folder
        self._options = options
        self._timeouts = timeouts
        self._link: Link | None = None
        self._running = asyncio.Event()
        self._cause = "it has not started yet"
        self._crashes: Counter[str] = Counter()
        self._pings: dict[Link, asyncio.Task[None]] = {}
        self._keeper: asyncio.Task[None] | None = None
        self._closed = False

    @classmethod
    async def start(
        cls,
        folder: Path,
        options: Sequence[str],
        first: Sequence[str],
        timeouts: SupervisorTimeouts,
    ) -> Self:
        """Start the first child, with the additional options ``first`` if it accepts them.

        Raises ``Conflict`` when a live process holds the folder, ``Unavailable`` when the child
        cannot start.
        """
        await wait_until_free(folder, timeouts.leftover)
        supervisor = cls(folder, options, timeouts)
        try:
            link = await supervisor._launch_first(first)
        except (LinkLostError, OSError) as exc:
            raise Unavailable(f"the vector engine cannot start: {exc}") from exc
        supervisor._publish(link)
        supervisor._keeper = asyncio.create_task(supervisor._keep(link))
        return supervisor

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
            await _stop(link)

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

    async def _ready(self) -> Link:
        while self._link is None:
            if self._closed:
                raise ServiceUnreachable("the vector engine is closed")
            await self._running.wait()
        return self._link

    def _late(self, op: VectorOp, seconds: float) -> LatentError:
        if self._running.is_set():
            return TimedOut(f"the vector engine did not answer {op} within {seconds:g} s")
        return ServiceUnreachable(f"the vector engine is not running ({self._cause}): try again")

    def _suspect(self, link: Link) -> None:
        """After a timeout: check whether the child still answers."""
        if link not in self._pings and not self._closed:
            self._pings[link] = asyncio.create_task(self._ping(link))

    async def _ping(self, link: Link) -> None:
        checked_at = time.monotonic()
        try:
            async with asyncio.timeout(self._timeouts.grace):
                await link.ask(VectorOp.PING, checked_at + self._timeouts.grace, "", {}, b"")
        except TimeoutError:
            if link.heard_at < checked_at:  # otherwise we were too busy to listen
                logger.warning("vector_child_hangs", extra={"pid": link.pid})
                link.kill()
        except LinkLostError:
            return
        finally:
            del self._pings[link]

    async def _keep(self, link: Link) -> None:
        """Replace each child that ends."""
        attempt = 0
        while True:
            await link.ended()
            self._withdraw()
            attempt = 0 if time.monotonic() - link.started_at > _HEALTHY_SECONDS else attempt
            self._note_end(link)
            while (again := await self._relaunch(attempt)) is None:
                attempt += 1
            attempt += 1
            link = again
            self.restarts += 1
            self._publish(link)

    async def _relaunch(self, attempt: int) -> Link | None:
        await asyncio.sleep(_PAUSES_SECONDS[min(attempt, len(_PAUSES_SECONDS) - 1)])
        distrusted = [name for name, times in self._crashes.items() if times >= _CRASHES_ALLOWED]
        options = [option for name in distrusted for option in ("--distrust", name)]
        try:
            return await self._launch([*self._options, *options])
        except (LinkLostError, OSError) as exc:
            self._cause = "it cannot be started, see the log"
            logger.warning("vector_child_start_failed", extra={"cause": str(exc)})
            return None

    async def _launch_first(self, first: Sequence[str]) -> Link:
        try:
            return await self._launch([*self._options, *first])
        except LinkLostError as exc:
            logger.warning("vector_child_start_failed", extra={"command": first, "cause": str(exc)})
            return await self._launch(self._options)

    async def _launch(self, options: Sequence[str]) -> Link:
        """Start a child and wait for its greeting; ``LinkLostError`` with the cause."""
        link = await Link.spawn(self._folder, options)
        try:
            async with asyncio.timeout(self._timeouts.start):
                await link.greeted()
        except (LinkLostError, TimeoutError) as exc:
            link.kill()
            await link.ended()
            raise LinkLostError(link.cause) from exc
        except asyncio.CancelledError:
            link.kill()
            await link.ended()
            raise
        return link

    def _publish(self, link: Link) -> None:
        self._link = link
        self._running.set()

    def _withdraw(self) -> None:
        self._link = None
        self._running.clear()

    def _note_end(self, link: Link) -> None:
        self._cause = f"it ended with status {link.returncode}"
        logger.warning("vector_child_exited", extra={"pid": link.pid, "cause": str(link.cause)})
        if link.returncode in _CRASHES and (name := _busy_with(self._folder)):
            self._crashes[name] += 1


async def _stop(link: Link) -> None:
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            await link.ask(VectorOp.CLOSE, time.monotonic() + _STOP_SECONDS, "", {}, b"")
            await link.ended()
    except (LinkLostError, TimeoutError):
        link.kill()
        await link.ended()


def _busy_with(folder: Path) -> str:
    """The collection that the last child was working on."""
    try:
        with (folder / BUSY_FILE).open("rb") as busy:
            return busy.read(BUSY_BYTES).decode("utf-8", errors="replace").strip()
    except OSError:
        return ""
