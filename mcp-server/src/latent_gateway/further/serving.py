"""A further gateway process: answers the requests of the connections that the first one passes on."""

from __future__ import annotations

import asyncio
import shutil
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from latent_core.domain.errors import TimedOut
from latent_core.models.providers.registry import Providers
from latent_core.runtime.data_directory import PRIVATE
from latent_core.runtime.secret_files import secrets_in
from latent_core.runtime.stop import StopSignal, stop_signals
from latent_core.runtime.tasks import ended
from latent_core.stack import Stack
from latent_core.telemetry.log_file import LogFile
from latent_core.telemetry.metrics import set_up_logs
from latent_core.telemetry.tracing import tracing
from latent_gateway.app import create_app
from latent_gateway.auth.shared_memory import SharedMemory
from latent_gateway.http_server import GatewayServer, run_server, server_config
from latent_gateway.processes.channel import Channel, Kind
from latent_gateway.processes.handoff import Handoff, numbered
from latent_gateway.processes.metrics import snapshot
from latent_gateway.query_log import PendingSearch

ALIVE_SECONDS: Final = 1.0
"""Between two signs of life."""
METRICS_SECONDS: Final = 10.0
_BYTES_PER_CONNECTION: Final = 1


async def serve(
    handoff: Handoff, messages: socket.socket, connections: socket.socket, memory: SharedMemory
) -> None:
    """Run until SIGTERM, or the end of the first process."""
    log_file = _set_up_logs(handoff)
    with numbered(handoff.number, handoff.settings.gateway_processes), stop_signals() as stop:
        async with AsyncExitStack() as running:
            channel = await Channel.open(messages)
            running.callback(channel.close)
            await running.enter_async_context(tracing(handoff.settings, "latent"))
            _make_empty(handoff.services.folders.tmp)
            stack = await running.enter_async_context(
                Stack.open(handoff.settings, name="gateway", joined=handoff.services)
            )
            await _answer(stack, memory, channel, connections, stop)
    if log_file is not None:
        log_file.close()


async def _answer(
    stack: Stack,
    memory: SharedMemory,
    channel: Channel,
    connections: socket.socket,
    stop: StopSignal,
) -> None:
    first = FirstProcess(channel, stack)
    app = create_app(
        stack.settings,
        stack,
        memory=memory,
        metrics_text=first.metrics_text,
        pass_on=first.pass_on,
    )
    server = GatewayServer(
        server_config(stack.settings, app),
        on_tick=_heartbeat(channel),
        on_closed=lambda: channel.send(Kind.CLOSED),
    )
    loop = asyncio.get_running_loop()

    def started() -> None:
        connections.setblocking(False)
        loop.add_reader(connections, _receive, connections, server)
        channel.send(Kind.READY)

    def ending() -> None:
        loop.remove_reader(connections)

    hearing = asyncio.create_task(first.hear(server), name="first-process")
    try:
        await run_server(server, app.state.gateway, [], stop, started=started, ending=ending)
    finally:
        await ended(hearing)


class FirstProcess:
    """Questions to the first process, and its questions to this one."""

    def __init__(self, channel: Channel, stack: Stack) -> None:
        self._channel = channel
        self._registry = stack.metrics.registry
        self._waiting: deque[asyncio.Future[bytes]] = deque()

    async def hear(self, server: GatewayServer) -> None:
        async for message in self._channel.messages():
            match message.kind:
                case Kind.SHED:
                    server.shed_connections(message.fields["count"])
                case Kind.ASK_METRICS:
                    self._channel.send(Kind.METRICS, values=snapshot(self._registry))
                case Kind.METRICS:
                    answer = self._waiting.popleft()
                    if not answer.done():  # its caller may be gone
                        answer.set_result(message.fields["text"].encode())

    async def metrics_text(self) -> bytes:
        """Of all processes."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        self._channel.send(Kind.ASK_METRICS)
        try:
            async with asyncio.timeout(METRICS_SECONDS):
                return await answer
        except TimeoutError as exc:
            raise TimedOut("the first process of this gateway did not answer in time") from exc

    def pass_on(self, search: PendingSearch) -> None:
        """To the log of queries."""
        self._channel.send(Kind.SEARCHED, search=search)


def _receive(connections: socket.socket, server: GatewayServer) -> None:
    """Serve the connections that have been passed on."""
    try:
        while True:
            sent, descriptors, _, _ = socket.recv_fds(connections, _BYTES_PER_CONNECTION, 1)
            if not sent:  # the first process is gone
                asyncio.get_running_loop().remove_reader(connections)
                return
            for descriptor in descriptors:
                connection = socket.socket(fileno=descriptor)
                connection.set_inheritable(False)
                connection.setblocking(False)
                server.serve_connection(connection)
    except BlockingIOError:
        return


def _make_empty(folder: Path) -> None:
    """The process before may have been killed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(PRIVATE)


def _heartbeat(channel: Channel) -> Callable[[], None]:
    sent_at = 0.0

    def beat() -> None:
        nonlocal sent_at
        if time.monotonic() - sent_at >= ALIVE_SECONDS:
            sent_at = time.monotonic()
            channel.send(Kind.ALIVE)

    return beat


def _set_up_logs(handoff: Handoff) -> LogFile | None:
    """The first process rotates the file, this one follows it."""
    log_file = LogFile() if handoff.log_file is not None else None
    own = [*secrets_in(handoff.settings), *Providers.of(handoff.settings).secrets()]
    set_up_logs(handoff.settings.log_format, own=own, shown=handoff.shown, file=log_file)
    if log_file is not None and handoff.log_file is not None:
        log_file.follow(handoff.log_file)
    return log_file
