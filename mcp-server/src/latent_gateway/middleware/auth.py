"""Authentication before a request's body is read: the token, the length of the body, and the path.

The framework reads and parses a body before it checks the sender. Here, an unknown sender gets an answer without
it, and a body over its limit gets one as soon as that is known.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from latent_core.db.connection import deadline
from latent_core.domain.errors import (
    Invalid,
    LatentError,
    NotFound,
    TimedOut,
    TooLarge,
    Unauthorized,
)
from latent_core.domain.text import trouble
from latent_gateway.auth.principal import Principal
from latent_gateway.envelope import error_answer

MEGABYTE: Final = 1024 * 1024
MAX_BODY_BYTES: Final = 2 * MEGABYTE
MAX_LISTING_BYTES: Final = 64 * MEGABYTE
SECONDS_BETWEEN_PIECES: Final = 60.0
LINGER_BYTES: Final = 4 * MEGABYTE
LINGER_SECONDS: Final = 2.0

OPEN: Final = re.compile(
    r"/(healthz|readyz|openapi\.json|v1/blobs/[^/]+|\.well-known/.*|login(?:/link)?|logout|console(/.*)?)?"
)
"""Paths without a token. The signature of a link is its permission. Agents look below ``.well-known`` for a login:
it must be a 404, because a 401 would make them search on. The console has its own session."""
SEARCH: Final = re.compile(r"/v1/(containers/search|search|doc_search)")
UPLOAD: Final = re.compile(
    r"/(?:v1|console)/containers/[^/]+/(?:uploads|resumable-uploads(?:/[^/]+)?)|/v1/imports"
)
LISTING: Final = re.compile(r"/v1/containers/[^/]+/listing")

Check = Callable[[str | None, str], Awaitable[Principal]]
"""Called with the ``Authorization`` header and the sender's address; raises ``Unauthorized`` or ``RateLimited``."""
Known = Callable[[Scope], bool]
"""Whether a route has the path of the request."""
Count = Callable[[Principal], None]
"""Called with the principal; raises ``RateLimited`` after too many requests."""


class AuthMiddleware:
    """ASGI middleware: checks the token, the length of the body, and that the path can name something.

    ``search_seconds`` is the time that a search has to check its token.
    """

    def __init__(
        self, app: ASGIApp, check: Check, count: Count, known: Known, search_seconds: float
    ) -> None:
        self._app = app
        self._known = known
        self._check = check
        self._count = count
        self._search_seconds = search_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            await self._admit(scope, headers)
            admitted = await _bounded(scope, headers, receive)
        except LatentError as error:
            await _refuse(error, scope, headers, receive, send)
            return
        if admitted is not None:
            await self._app(scope, admitted, send)

    async def _admit(self, scope: Scope, headers: Headers) -> None:
        """Stores the principal in the scope, so that the token is checked once per request."""
        if not OPEN.fullmatch(scope["path"]):
            limited = SEARCH.fullmatch(scope["path"]) is not None
            with deadline(self._search_seconds) if limited else nullcontext():
                caller = await self._caller(scope, headers)
            self._count(caller)
            scope["latent.principal"] = caller
        wrong = trouble(scope["path"])
        if wrong is not None:
            raise Invalid(f"the path {wrong}")

    async def _caller(self, scope: Scope, headers: Headers) -> Principal:
        """``NotFound`` for an unknown path without a token: a 401 would make clients look for a login."""
        try:
            return await self._check(headers.get("authorization"), address_of(scope))
        except Unauthorized:
            if "authorization" in headers or self._known(scope):
                raise
            raise NotFound(f"{scope['method']} {scope['path'][:200]}: not found") from None


def address_of(scope: Scope) -> str:
    """The address of the sender; empty if the server does not know it."""
    client = scope.get("client")
    return str(client[0]) if client else ""


async def _bounded(scope: Scope, headers: Headers, receive: Receive) -> Receive | None:
    """The ``receive`` for the app: the whole body, counted; None if the sender has disconnected."""
    if not _has_body(headers) or streamed(scope):
        return receive
    limit = MAX_LISTING_BYTES if LISTING.fullmatch(scope["path"]) else MAX_BODY_BYTES
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    body = await _read(receive, limit)
    return None if body is None else _replay(body, receive)


def streamed(scope: Scope) -> bool:
    """Whether the route reads and counts the body itself: it may be larger than memory."""
    return scope["method"] in ("POST", "PATCH") and UPLOAD.fullmatch(scope["path"]) is not None


def _has_body(headers: Headers) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


async def _read(receive: Receive, limit: int) -> bytes | None:
    pieces: list[bytes] = []
    size, more = 0, True
    while more:
        try:
            async with asyncio.timeout(SECONDS_BETWEEN_PIECES):
                message = await receive()
        except TimeoutError as exc:
            raise TimedOut(
                "no data of the request's body arrived for a minute: send it again"
            ) from exc
        if message["type"] != "http.request":
            return None
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        more = message.get("more_body", False)
        if size > limit:
            raise _too_large(limit)
    return b"".join(pieces)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body of this request may have at most {limit} bytes: split it")


def _replay(body: bytes, receive: Receive) -> Receive:
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return waiting.pop() if waiting else await receive()

    return replayed


async def _refuse(
    error: LatentError, scope: Scope, headers: Headers, receive: Receive, send: Send
) -> None:
    """Answer and close the connection. The rest of the body is read for a moment, so that the sender can read the
    answer."""
    answer = error_answer(error, scope["latent.request_id"])
    if not _has_body(headers):
        await answer(scope, receive, send)
        return
    answer.headers["Connection"] = "close"
    start = {"status": answer.status_code, "headers": answer.raw_headers}
    await send({"type": "http.response.start", **start})
    await send({"type": "http.response.body", "body": answer.body, "more_body": True})
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_SECONDS):
            await _discard(receive)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _discard(receive: Receive) -> None:
    size, more = 0, True
    while more and size <= LINGER_BYTES:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
