"""Keeps one vector child running: a dead one is restarted at once, later with growing pauses."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from typing_extensions import override

from latent_core.domain.errors import Unavailable
from latent_core.vectors.edge.caller import GRACE_SECONDS, PAUSES_SECONDS, EngineCaller
from latent_core.vectors.edge.folder_owner import wait_until_free
from latent_core.vectors.edge.link import Link, LinkLostError
from latent_core.vectors.edge.protocol import BUSY_BYTES, BUSY_FILE, VectorOp

logger = logging.getLogger(__name__)

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
    grace: float = GRACE_SECONDS
    """For a ping, after a call timed out."""
    leftover: float = 3.0
    """For a child of an earlier owner to end by itself after its current call."""


class Supervisor(EngineCaller[Link]):
    """One running child on ``folder``, until ``close``."""

    def __init__(
        self,
        folder: Path,
        options: Sequence[str],
        timeouts: SupervisorTimeouts,
        listening: socket.socket | None = None,
    ) -> None:
        super().__init__(timeouts.grace)
        self._folder = folder
        self._options = options
        self._timeouts = timeouts
        self._listening = listening
        self._crashes: Counter[str] = Counter()

    @classmethod
    async def start(
        cls,
        folder: Path,
        options: Sequence[str],
        first: Sequence[str],
        timeouts: SupervisorTimeouts,
        listening: socket.socket | None = None,
    ) -> Self:
        """Start the first child, with the additional options ``first`` if it accepts them. Further processes reach
        each child by ``listening``.

        Raises ``Conflict`` when a live process holds the folder, ``Unavailable`` when the child
        cannot start.
        """
        await wait_until_free(folder, timeouts.leftover)
        supervisor = cls(folder, options, timeouts, listening)
        try:
            link = await supervisor._launch_first(first)
        except (LinkLostError, OSError) as exc:
            raise Unavailable(f"the vector engine cannot start: {exc}") from exc
        supervisor._publish(link)
        supervisor._keeper = asyncio.create_task(supervisor._keep(link))
        return supervisor

    @override
    async def _stop(self, link: Link) -> None:
        """Flush, and end the process."""
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await link.ask(VectorOp.CLOSE, time.monotonic() + _STOP_SECONDS, "", {}, b"")
                await link.ended()
        except (LinkLostError, TimeoutError):
            link.kill()
            await link.ended()

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
        await asyncio.sleep(PAUSES_SECONDS[min(attempt, len(PAUSES_SECONDS) - 1)])
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
        link = await Link.spawn(self._folder, options, self._listening)
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

    def _note_end(self, link: Link) -> None:
        self._cause = f"it ended with status {link.returncode}"
        logger.warning("vector_child_exited", extra={"pid": link.pid, "cause": str(link.cause)})
        if link.returncode in _CRASHES and (name := _busy_with(self._folder)):
            self._crashes[name] += 1


def _busy_with(folder: Path) -> str:
    """The collection that the last child was working on."""
    try:
        with (folder / BUSY_FILE).open("rb") as busy:
            return busy.read(BUSY_BYTES).decode("utf-8", errors="replace").strip()
    except OSError:
        return ""
