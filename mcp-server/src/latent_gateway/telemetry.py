"""Around every request: an id, a log line, metrics, and an envelope for what nobody foresaw."""

from __future__ import annotations

import logging
import re
from time import perf_counter
from typing import Final
from uuid import uuid4

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from latent_core.domain.errors import LatentError, Unavailable
from latent_gateway.answers import error_answer

logger = logging.getLogger("latent_gateway.requests")

REQUEST_ID: Final = re.compile(r"^[A-Za-z0-9._-]{1,64}$")


class RequestMetrics:
    """Requests by route and status, and how long they took."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.count = Counter(
            "latent_http_requests",
            "HTTP requests",
            ["route", "method", "status"],
            registry=registry,
        )
        self.seconds = Histogram(
            "latent_http_request_seconds",
            "Seconds until the answer was sent",
            ["route"],
            registry=registry,
            buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 60),
        )


class Telemetry:
    """ASGI middleware; plain, since a streaming body must pass through untouched."""

    def __init__(self, app: ASGIApp, metrics: RequestMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope["latent.request_id"] = request_id
        begun, status = perf_counter(), 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message.setdefault("headers", []).append((b"x-request-id", request_id.encode()))
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except Exception as exc:  # the outermost loop of a request: it logs and answers
            if status:
                raise
            await _unforeseen(exc, request_id)(scope, receive, noting)
        finally:
            self._note(scope, status, perf_counter() - begun, request_id)

    def _note(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        route = getattr(scope.get("route"), "path", "unmatched")
        self._metrics.count.labels(route, scope["method"], str(status)).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        logger.info(
            "request",
            extra={
                "request_id": request_id,
                "method": scope["method"],
                "path": scope["path"],  # never the query string: it may hold a signature
                "status": status,
                "latency_ms": round(seconds * 1000, 2),
            },
        )


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and REQUEST_ID.match(value.decode("latin-1")):
            return str(value.decode("latin-1"))
    return uuid4().hex


def _unforeseen(exc: Exception, request_id: str) -> ASGIApp:
    """Even what nobody foresaw answers in an envelope; the cause is in the log under the request's id."""
    if isinstance(exc, LatentError):
        return error_answer(exc, request_id)
    logger.error("request_failed", exc_info=exc, extra={"request_id": request_id})
    return error_answer(
        Unavailable(f"the gateway could not answer; its log says why under request {request_id}"),
        request_id,
    )
