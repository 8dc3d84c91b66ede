"""The pages of LLC_METRICS_PORT: ``/metrics``, ``/healthz`` and ``/readyz``, without a token.

They are served in threads, because a worker has no web server. Both health pages ask the process's event loop, so a
process that hangs does not count as healthy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from socket import AF_INET6
from socketserver import ThreadingMixIn
from threading import Thread
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app
from pydantic import BaseModel
from typing_extensions import override

from latent_core.domain.errors import Conflict
from latent_core.settings import Settings
from latent_core.telemetry.metrics import Metrics
from latent_core.wire.doctor import HealthAnswer, ReadinessAnswer

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

logger = logging.getLogger(__name__)

Readiness = Callable[[], Awaitable[tuple[bool, ReadinessAnswer]]]
"""Whether the process can do its work, and the answer of ``/readyz``."""

MetricsText = Callable[[], Awaitable[bytes]]
"""The answer of ``/metrics``: the metrics of all processes of a gateway, read now."""

JOIN_SECONDS: Final = 5.0
LOOP_SECONDS: Final = 3.0
"""Deadline of the event loop; longer than that of the services' probes."""
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"


@contextmanager
def metrics_served(
    settings: Settings,
    metrics: Metrics,
    readiness: Readiness,
    summed: MetricsText | None = None,
) -> Iterator[None]:
    """Serve the pages during the block if a port is set; ``Conflict`` when it is in use. Call it in an event loop.

    ``summed`` answers the metrics of several processes, instead of those of this one.
    """
    if settings.metrics_port is None:
        yield
        return
    pages = _Pages(metrics, readiness, asyncio.get_running_loop(), summed)
    server_class = _IPv6Server if ":" in settings.bind else _Server
    try:
        server = make_server(
            settings.bind, settings.metrics_port, pages.answer, server_class, _SilentHandler
        )
    except OSError as exc:
        raise Conflict(
            f"metrics cannot be served on port {settings.metrics_port} of {settings.bind} ({exc.strerror}); "
            "choose another with LLC_METRICS_PORT"
        ) from exc
    thread = Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    logger.info("metrics_served", extra={"bind": settings.bind, "port": settings.metrics_port})
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(JOIN_SECONDS)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _IPv6Server(_Server):
    address_family = AF_INET6


class _SilentHandler(WSGIRequestHandler):
    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes and probes would fill the log."""


class _Pages:
    """A WSGI application. Its threads ask ``loop`` for health and readiness."""

    def __init__(
        self,
        metrics: Metrics,
        readiness: Readiness,
        loop: asyncio.AbstractEventLoop,
        summed: MetricsText | None,
    ) -> None:
        self._summed = summed
        self._metrics = make_wsgi_app(metrics.registry)
        self._readiness = readiness
        self._loop = loop

    def answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return _page(start_response, HTTPStatus.METHOD_NOT_ALLOWED, "GET only\n")
        match environ["PATH_INFO"]:
            case "/metrics" if self._summed is not None:
                status, body = self._in_loop(self._all_metrics)
            case "/metrics":
                metrics: Iterable[bytes] = self._metrics(environ, start_response)
                return metrics
            case "/healthz":
                status, body = self._in_loop(self._health)
            case "/readyz":
                status, body = self._in_loop(self._ready)
            case _:
                status, body = HTTPStatus.NOT_FOUND, "pages: /metrics, /healthz, /readyz\n"
        return _page(start_response, status, body)

    def _in_loop(
        self, page: Callable[[], Coroutine[Any, Any, tuple[HTTPStatus, BaseModel | str]]]
    ) -> tuple[HTTPStatus, BaseModel | str]:
        future = asyncio.run_coroutine_threadsafe(page(), self._loop)
        try:
            return future.result(LOOP_SECONDS)
        except TimeoutError:
            future.cancel()
            return (
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"the process is busy: its event loop did not answer within {LOOP_SECONDS:g} s\n",
            )

    async def _all_metrics(self) -> tuple[HTTPStatus, str]:
        assert self._summed is not None
        return HTTPStatus.OK, (await self._summed()).decode()

    async def _health(self) -> tuple[HTTPStatus, BaseModel]:
        return HTTPStatus.OK, HealthAnswer()

    async def _ready(self) -> tuple[HTTPStatus, BaseModel]:
        ready, answer = await self._readiness()
        return HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE, answer


def _page(
    start_response: StartResponse, status: HTTPStatus, body: BaseModel | str
) -> Iterable[bytes]:
    content = body if isinstance(body, str) else body.model_dump_json()
    kind = TEXT if isinstance(body, str) else JSON
    start_response(f"{status.value} {status.phrase}", [("Content-Type", kind)])
    return [content.encode()]
