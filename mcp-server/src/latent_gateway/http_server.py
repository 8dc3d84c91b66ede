"""The HTTP server: uvicorn without signal handlers, which can also serve connections that another process accepted."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn
from starlette.types import ASGIApp
from typing_extensions import override

from latent_core.domain.errors import Conflict
from latent_core.runtime.stop import StopSignal
from latent_core.runtime.tasks import ended
from latent_core.settings import Settings
from latent_core.stack import refuse_taken
from latent_gateway.context import Gateway

logger = logging.getLogger(__name__)

SHUTDOWN_SECONDS: Final = 10
BACKLOG: Final = 512
GC_OBJECTS: Final = 20_000
"""New objects until a collection. A search over several containers makes some thousand, and Python's 700 would run
several collections within each."""
KEEP_ALIVE_SECONDS: Final = 75
"""Longer than clients keep an idle connection, so that none is closed under a new request."""


def listen(settings: Settings) -> socket.socket:
    """Bind before anything starts, so that a port in use is an error at once."""
    family = socket.AF_INET6 if ":" in settings.bind else socket.AF_INET
    # With an explicit protocol, asyncio sets TCP_NODELAY. Otherwise a body that follows its head
    # waits 40 ms for the client's delayed acknowledgement.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.bind, settings.port))
        listening.listen(BACKLOG)
    except OSError as exc:
        listening.close()
        refuse_taken(settings)  # then another port would not help
        raise Conflict(
            f"port {settings.port} on {settings.bind} cannot be used ({exc.strerror}); choose another with --port or LLC_PORT",
            port=settings.port,
        ) from exc
    return listening


def server_config(settings: Settings, app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        # Otherwise any process on this machine could forge its address with X-Forwarded-For.
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=",".join(settings.trusted_proxies),
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )


class GatewayServer(uvicorn.Server):
    """A server that does not handle signals: the worker in the same process must stop as well, in order."""

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        on_tick: Callable[[], None] | None = None,
        on_closed: Callable[[], None] | None = None,
    ) -> None:
        """``on_tick`` is called ten times a second while the event loop runs, ``on_closed`` once for each connection
        that ended."""
        super().__init__(config)
        self._on_tick = on_tick
        self._on_closed = on_closed
        self._opening: set[asyncio.Task[None]] = set()

    @property
    def open_connections(self) -> int:
        return len(self.server_state.connections) + len(self._opening)

    def serve_connection(self, connection: socket.socket) -> None:
        """Answer the requests of an accepted connection."""
        task = asyncio.create_task(self._open(connection), name="connection")
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    def shed_connections(self, count: int) -> None:
        """Close so many connections after the answers that they wait for. These say so, and clients connect again."""
        cycles = [getattr(one, "cycle", None) for one in self.server_state.connections]
        waiting = [one for one in cycles if one is not None and not one.response_started]
        for cycle in waiting[:count]:
            cycle.keep_alive = False

    @override
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._on_closed is not None:
            protocol = self.config.http_protocol_class
            self.config.http_protocol_class = _reporting(protocol, self._on_closed)
        await super().startup(sockets)

    @override
    async def on_tick(self, counter: int) -> bool:
        if self._on_tick is not None:
            self._on_tick()
        return await super().on_tick(counter)

    async def _open(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(self._protocol, connection)
        except OSError as exc:  # the client has left again
            logger.info("connection_not_opened", extra={"cause": str(exc)})
            connection.close()
            if self._on_closed is not None:
                self._on_closed()

    def _protocol(self) -> asyncio.Protocol:
        return self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
            _loop=asyncio.get_running_loop(),
        )


async def run_server(
    server: GatewayServer,
    shared: Gateway,
    sockets: list[socket.socket],
    stop: StopSignal,
    *,
    started: Callable[[], None],
    ending: Callable[[], None],
) -> None:
    """Answer requests until a signal, or the end of the server. Calls ``started`` once it answers, and ``ending`` when
    it begins to stop."""

    def end() -> None:
        shared.stack.closing.set()  # streams end first, so that they do not delay the shutdown
        ending()
        server.should_exit = True

    stop.gracefully(end)
    warming = asyncio.create_task(shared.warmer.keep_warm(), name="warm")
    task = asyncio.create_task(server.serve(sockets=sockets), name="gateway")
    while not server.started and not task.done():  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    if server.started:
        gc.freeze()  # modules stay: full collections over them would stop the loop for 0.1 s
        gc.set_threshold(GC_OBJECTS, 10, 10)
        started()
    try:
        await task
    finally:
        await ended(warming)
        await shared.warmer.close()


def _reporting(
    protocol: type[asyncio.Protocol], on_closed: Callable[[], None]
) -> type[asyncio.Protocol]:
    class ReportingProtocol(protocol):  # type: ignore[misc,valid-type]
        @override
        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            on_closed()

    return ReportingProtocol
