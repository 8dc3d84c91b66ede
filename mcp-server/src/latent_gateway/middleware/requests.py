"""Around every request: an id, a log line, metrics, a span, compression, security headers, and an envelope for
unexpected errors."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from time import perf_counter
from typing import Final
from uuid import uuid4

from prometheus_client import Counter, Histogram
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from latent_core.domain.errors import IssueCode, LatentError, Unavailable
from latent_core.queue.origin import from_request
from latent_core.telemetry.metrics import Metrics, bound
from latent_core.telemetry.tracing import TraceSpan, span
from latent_gateway.envelope import ISSUE_HEADER, error_answer

logger = logging.getLogger("latent_gateway.requests")

REQUEST_ID: Final = re.compile(r"^[A-Za-z0-9._-]{1,64}$")
BATCH_HEADER: Final = "x-batch-id"


class RequestMetrics:
    """Requests by route and status, their duration, and errors by code."""

    def __init__(self, metrics: Metrics) -> None:
        self.of_process = metrics
        registry = metrics.registry
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

    def start_at_zero(self, answers: Iterable[tuple[str, str, int]]) -> None:
        """Count from 0, by route, method and status; see ``Metrics``."""
        for route, method, status in answers:
            self.count.labels(route, method, str(status))


class TelemetryMiddleware:
    """ASGI middleware without a framework class, so that streamed bodies pass through unchanged."""

    def __init__(self, app: ASGIApp, metrics: RequestMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope["latent.request_id"] = request_id
        headers = {name.decode("latin-1"): v.decode("latin-1") for name, v in scope["headers"]}
        with (
            bound(request_id=request_id),
            from_request(batch_of(headers) or request_id),
            span(scope["method"], headers=headers, request_id=request_id) as traced,
        ):
            await self._answer(scope, receive, send, traced)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, traced: TraceSpan) -> None:
        request_id = scope["latent.request_id"]
        begun, status = perf_counter(), 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._take_off_issue(message, traced)
                message["headers"].append((b"x-request-id", request_id.encode()))
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except Exception as exc:  # the outermost frame of a request: it logs and answers
            if status:
                raise
            await _unforeseen(exc, request_id)(scope, receive, noting)
        finally:
            traced.rename(f"{scope['method']} {_route(scope)}")
            traced.set(status=status)
            self._note(scope, status, perf_counter() - begun, request_id)

    def _take_off_issue(self, message: Message, traced: TraceSpan) -> None:
        """Count the issue of the answer and remove its header; the body has the issue, too."""
        headers = list(message.get("headers", ()))
        for name, value in headers:
            if name == ISSUE_HEADER:
                self._metrics.of_process.failed("http", IssueCode(value.decode()))
                traced.failed(value.decode())
        message["headers"] = [pair for pair in headers if pair[0] != ISSUE_HEADER]

    def _note(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        route = _route(scope)
        self._metrics.count.labels(route, scope["method"], str(status)).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        logger.info(
            "request",
            extra={
                "request_id": request_id,
                "method": scope["method"],
                "path": scope["path"],  # never the query string: it may contain a signature
                "status": status,
                "latency_ms": round(seconds * 1000, 2),
            },
        )


def _route(scope: Scope) -> str:
    return str(getattr(scope.get("route"), "path", "unmatched"))


def batch_of(headers: Mapping[str, str]) -> str | None:
    """The batch of several requests that are one to the person who sends them, such as the upload of a folder."""
    batch = headers.get(BATCH_HEADER, "")
    return f"batch {batch}" if REQUEST_ID.match(batch) else None


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and REQUEST_ID.match(value.decode("latin-1")):
            return str(value.decode("latin-1"))
    return uuid4().hex


def _unforeseen(exc: Exception, request_id: str) -> ASGIApp:
    """An envelope for unexpected errors; the log has the cause under the request id."""
    if isinstance(exc, LatentError):
        return error_answer(exc, request_id)
    logger.error("request_failed", exc_info=exc, extra={"request_id": request_id})
    return error_answer(
        Unavailable(f"internal error: the gateway's log has the cause under request {request_id}"),
        request_id,
    )


LEVEL: Final = 1
MIN_BYTES: Final = 1024
UNTOUCHED: Final = (
    *DEFAULT_EXCLUDED_CONTENT_TYPES,
    "application/octet-stream",
    "application/pdf",
    "application/x-tar",
)
BLOBS: Final = "/v1/blobs/"


class CompressionMiddleware:
    """ASGI middleware that compresses answers for clients that accept it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._compressing = GZipMiddleware(
            app, minimum_size=MIN_BYTES, compresslevel=LEVEL, exclude_content_types=UNTOUCHED
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        plain = scope["type"] != "http" or scope["path"].startswith(BLOBS) or not _asks(scope)
        await (self._app if plain else self._compressing)(scope, receive, send)


def _asks(scope: Scope) -> bool:
    return any(
        name == b"accept-encoding" and b"gzip" in value.lower() for name, value in scope["headers"]
    )


DEFAULTS: Final = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"referrer-policy": b"no-referrer",
}


class ResponseHeaders:
    """ASGI middleware that adds headers which the answer does not have."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def adding(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = list(message.get("headers", ()))
                names = {name.lower() for name, _ in given}
                missing = [pair for pair in DEFAULTS.items() if pair[0] not in names]
                message["headers"] = [*given, *missing]
            await send(message)

        await self._app(scope, receive, adding if scope["type"] == "http" else send)
