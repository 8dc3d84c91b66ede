"""A further gateway process, as the first one sees it."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import signal
import socket
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

from latent_gateway.processes.channel import Channel, Kind, Message
from latent_gateway.processes.handoff import Handoff
from latent_gateway.processes.metrics import Snapshot

logger = logging.getLogger(__name__)

PROGRAM: Final = "latent_gateway.further"
LATE_SECONDS: Final = 3.0
"""Without a sign of life for so long, a process gets no new connections."""
EXIT_SECONDS: Final = 5.0
"""For a process to end that has closed its channel."""


class FurtherProcess:
    """A running process. ``listen`` waits for its end."""

    def __init__(
        self, number: int, process: Process, channel: Channel, connections: socket.socket
    ) -> None:
        self.number = number
        self.started_at = self.heard_at = time.monotonic()
        self.is_ready = False
        self.open_connections = 0
        self._process = process
        self._channel = channel
        self._connections = connections
        self._pending_metrics: deque[asyncio.Future[Snapshot]] = deque()
        """Answers come in this order."""

    @classmethod
    async def spawn(cls, handoff: Handoff, memory: int) -> Self:
        """``memory``: the descriptor of the shared file."""
        messages, their_messages = socket.socketpair()
        connections, their_connections = socket.socketpair()
        connections.setblocking(False)
        with their_messages, their_connections:
            passed = (their_messages.fileno(), their_connections.fileno(), memory)
            channel = await Channel.open(messages)
            try:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", PROGRAM, *map(str, passed)),
                    stdin=PIPE,
                    stdout=DEVNULL,
                    pass_fds=passed,
                    start_new_session=True,  # Ctrl-C in the terminal is for the first process alone
                )
            except BaseException:
                channel.close()
                connections.close()
                raise
        assert process.stdin is not None
        process.stdin.write(pickle.dumps(handoff))  # it stays open: the lifeline
        return cls(handoff.number, process, channel, connections)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        return self._process.returncode

    @property
    def silent_seconds(self) -> float:
        """Since its last message."""
        return time.monotonic() - self.heard_at

    @property
    def takes_connections(self) -> bool:
        return self.is_ready and self.silent_seconds < LATE_SECONDS

    def serve_connection(self, connection: socket.socket) -> bool:
        """Pass on an accepted connection; false if the process does not take it."""
        try:
            # The other process may not learn that it is TCP, and would then not set it (macOS).
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            socket.send_fds(self._connections, [b"c"], [connection.fileno()])
        except OSError as exc:  # it is gone, or hangs and its queue is full
            logger.info(
                "connection_not_passed_on", extra={"number": self.number, "cause": str(exc)}
            )
            return False
        self.open_connections += 1
        connection.close()
        return True

    def shed_connections(self, count: int) -> None:
        """As ``GatewayServer.shed_connections``."""
        self._channel.send(Kind.SHED, count=count)

    async def metrics(self) -> Snapshot:
        """Its metrics; ``EOFError`` if it ends before it answers."""
        answer: asyncio.Future[Snapshot] = asyncio.get_running_loop().create_future()
        self._pending_metrics.append(answer)
        self._channel.send(Kind.ASK_METRICS)
        return await answer

    def answer_metrics(self, text: bytes) -> None:
        """Of all processes, for which this one has asked."""
        self._channel.send(Kind.METRICS, text=text.decode())

    async def listen(self, on_message: Callable[[Message], None]) -> None:
        """Note what the process says, until it is gone; ``on_message`` gets what concerns others, too."""
        async for message in self._channel.messages():
            self.heard_at = time.monotonic()
            match message.kind:
                case Kind.READY:
                    self.is_ready = True
                    logger.info(
                        "gateway_process_ready", extra={"number": self.number, "pid": self.pid}
                    )
                    on_message(message)
                case Kind.CLOSED:
                    self.open_connections -= 1
                case Kind.METRICS:
                    answer = self._pending_metrics.popleft()
                    if not answer.done():  # its caller may be gone
                        answer.set_result(message.fields["values"])
                case Kind.ALIVE:
                    pass
                case _:
                    on_message(message)
        self.is_ready = False
        for answer in self._pending_metrics:
            if not answer.done():
                answer.set_exception(EOFError("the process has ended"))
        self._channel.close()
        self._connections.close()
        await self._exited()

    def stop(self) -> None:
        """Ask it to end in order."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        # Do not use the process object: it reaps before it signals, and the event loop then never gets the status.
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def _exited(self) -> None:
        try:
            async with asyncio.timeout(EXIT_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
