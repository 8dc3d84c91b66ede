"""All gateway processes of an installation: the first one starts, watches, replaces and ends the further ones, and
gives each new connection to the one with the fewest (ADR 0069)."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from dataclasses import dataclass
from functools import partial
from typing import Final

from latent_core.runtime.process import part
from latent_core.runtime.tasks import ended
from latent_gateway.context import Gateway
from latent_gateway.http_server import SHUTDOWN_SECONDS, GatewayServer
from latent_gateway.processes.channel import Kind, Message
from latent_gateway.processes.further_process import FurtherProcess
from latent_gateway.processes.handoff import Handoff
from latent_gateway.processes.metrics import GroupMetrics

logger = logging.getLogger(__name__)

PAUSES_SECONDS: Final = (0.0, 0.5, 2.0, 10.0, 30.0)
"""Before a process is started again."""
STEADY_SECONDS: Final = 60.0
"""A process that lived so long is started again without a pause."""
WATCH_SECONDS: Final = 1.0
BALANCE_SECONDS: Final = 1.0
ACCEPT_PAUSE_SECONDS: Final = 1.0
"""After a connection could not be accepted: there may be too many open files."""


@dataclass(frozen=True, slots=True)
class GroupTimeouts:
    """Timeouts in seconds."""

    start: float = 60.0
    """Until a new process is ready."""
    hang: float = 10.0
    """Without a sign of life from a process."""
    stop: float = SHUTDOWN_SECONDS + 5.0
    """For a process to end in order."""


class ProcessGroup:
    """The processes of the numbers 1 (this one) to ``size``."""

    def __init__(
        self,
        handoff: Handoff,
        size: int,
        shared: Gateway,
        metrics: GroupMetrics,
        timeouts: GroupTimeouts = GroupTimeouts(),
    ) -> None:
        """``shared`` are the objects of this process."""
        self.size = size
        self._handoff = handoff
        self._shared = shared
        self._metrics = metrics
        self._timeouts = timeouts
        self._further: dict[int, FurtherProcess] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._serving: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self._answering: set[asyncio.Task[None]] = set()
        self._given_at: dict[int, int] = {}
        """The count of connections at which each process got its last one."""
        self._given = 0

    def start(self, server: GatewayServer, listening: socket.socket) -> None:
        """Accept connections for ``server`` and the further processes, which are started now."""
        if (memory := self._shared.memory.descriptor) is None:
            return
        self._serving = [
            asyncio.create_task(self._accept(server, listening), name="accept"),
            asyncio.create_task(self._keep_balanced(server), name="balance"),
        ]
        self._keepers = [
            asyncio.create_task(self._keep(number, memory), name=f"process-{number}")
            for number in range(2, self.size + 1)
        ]

    def begin_stop(self) -> None:
        """Accept no more connections, and ask the further processes to end."""
        self._stopping.set()
        for task in self._serving:
            task.cancel()
        for process in self._further.values():
            process.stop()

    async def close(self) -> None:
        """Return when all further processes are gone."""
        self.begin_stop()
        await ended(*self._serving)
        if not self._keepers:
            return
        await asyncio.wait(self._keepers, timeout=self._timeouts.stop)
        for process in self._further.values():
            logger.warning("gateway_process_killed", extra={"number": process.number})
            process.kill()
        await asyncio.gather(*self._keepers)
        await ended(*self._answering)

    async def _accept(self, server: GatewayServer, listening: socket.socket) -> None:
        """Until cancelled; then connections are refused."""
        loop = asyncio.get_running_loop()
        listening.setblocking(False)
        with listening:
            while True:
                try:
                    connection, _ = await loop.sock_accept(listening)
                except OSError as exc:
                    logger.warning("connection_not_accepted", extra={"cause": str(exc)})
                    await asyncio.sleep(ACCEPT_PAUSE_SECONDS)
                else:
                    self._give(connection, server)

    def _give(self, connection: socket.socket, server: GatewayServer) -> None:
        """To the process with the fewest open connections; of those, to the one that got its last one first."""
        self._given += 1
        load = self._load(server)
        for number in sorted(load, key=lambda n: (load[n], self._given_at.get(n, 0))):
            if number == 1:
                server.serve_connection(connection)
            elif not self._further[number].serve_connection(connection):
                continue
            self._given_at[number] = self._given
            return

    def _load(self, server: GatewayServer) -> dict[int, int]:
        """Open connections of each process that takes more."""
        return {1: server.open_connections} | {
            number: process.open_connections
            for number, process in self._further.items()
            if process.takes_connections
        }

    async def _keep_balanced(self, server: GatewayServer) -> None:
        """Let processes close connections beyond their share, which others then get: one may be new, or has lost its
        clients."""
        while True:
            await asyncio.sleep(BALANCE_SECONDS)
            load = self._load(server)
            share = part(sum(load.values()), len(load))
            for number, count in load.items():
                if count > share:
                    source = server if number == 1 else self._further[number]
                    source.shed_connections(count - share)

    async def _keep(self, number: int, memory: int) -> None:
        """Start the process, and again whenever it ends, until ``begin_stop``."""
        failures = 0
        while not self._stopping.is_set():
            started_at = time.monotonic()
            try:
                process = await FurtherProcess.spawn(self._handoff.of(number), memory)
            except OSError as exc:
                logger.warning(
                    "gateway_process_start_failed", extra={"number": number, "cause": str(exc)}
                )
            else:
                await self._run(process)
            if time.monotonic() - started_at > STEADY_SECONDS:
                failures = 0
            await self._pause(PAUSES_SECONDS[min(failures, len(PAUSES_SECONDS) - 1)])
            failures += 1

    async def _run(self, process: FurtherProcess) -> None:
        """Watch a process until it is gone."""
        self._further[process.number] = process
        if self._stopping.is_set():
            process.stop()
        watching = asyncio.create_task(self._watch(process))
        try:
            await process.listen(partial(self._answer, process))
        finally:
            await ended(watching)
            del self._further[process.number]
            self._metrics.remove(process.number)
            self._shared.forget_process(process.number)
        if not self._stopping.is_set():
            logger.error(
                "gateway_process_exited",
                extra={
                    "number": process.number,
                    "pid": process.pid,
                    "exit_status": process.exit_status,
                },
            )

    def _answer(self, process: FurtherProcess, message: Message) -> None:
        match message.kind:
            case Kind.READY:
                self._metrics.add(process.number, process.metrics)
            case Kind.SEARCHED:
                self._shared.query_log.receive(message.fields["search"])
            case Kind.ASK_METRICS:
                task = asyncio.create_task(self._send_metrics(process), name="metrics")
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)
            case _:
                logger.warning("unexpected_message", extra={"kind": message.kind})

    async def _send_metrics(self, process: FurtherProcess) -> None:
        process.answer_metrics(await self._metrics.refreshed())

    async def _watch(self, process: FurtherProcess) -> None:
        """Kill a process that does not start in time, or hangs."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(WATCH_SECONDS)
            if time.monotonic() - before > 2 * WATCH_SECONDS:
                process.heard_at = time.monotonic()  # this process could not listen itself
            limit = self._timeouts.hang if process.is_ready else self._timeouts.start
            if process.silent_seconds > limit and not self._stopping.is_set():
                logger.error(
                    "gateway_process_hangs", extra={"number": process.number, "pid": process.pid}
                )
                process.kill()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return
