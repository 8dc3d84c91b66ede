"""The HTTP client of all model servers: requests with a deadline and a size limit, streams, ``Retry-After``, and errors."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

import httpx
import orjson

from latent_core.domain.errors import (
    LatentError,
    LimitReached,
    MalformedAnswer,
    ServiceUnreachable,
    UpstreamError,
    UpstreamOverload,
    UpstreamTimeout,
)
from latent_core.domain.service_health import ServiceHealth
from latent_core.models.http.events import MEDIA_TYPE, event_data
from latent_core.telemetry.redaction import OwnKey


def seconds_to_wait(header: str | None) -> float | None:
    """The delay of a ``Retry-After`` header, never negative; None without a valid number or date."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):  # not a date, or one without a time zone
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


_PARTS: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_EPOCH: Final = 1e9
"""A larger number is a date."""
COUNTED: Final = ("requests", "tokens")
"""What ``x-ratelimit-…`` headers count."""


def _until_reset(header: str | None) -> float | None:
    """Seconds of an ``x-ratelimit-reset-…`` header: ``6m0s``, ``12ms``, a number, or a date."""
    if header is None:
        return None
    parts = _PARTS.findall(header)
    if parts and "".join(number + unit for number, unit in parts) == header.strip():
        return sum(float(number) * _SECONDS[unit] for number, unit in parts)
    seconds = seconds_to_wait(header)
    if seconds is not None and seconds > _EPOCH:
        return max(0.0, seconds - datetime.now(UTC).timestamp())
    return seconds


def seconds_exhausted(headers: httpx.Headers) -> float | None:
    """The delay that ``x-ratelimit-…`` headers ask for: until what has no remainder is reset; None if all have one."""
    waits = [
        _until_reset(headers.get(f"x-ratelimit-reset-{counted}"))
        for counted in COUNTED
        if headers.get(f"x-ratelimit-remaining-{counted}", "").strip() in ("0", "0.0")
    ]
    return max((wait for wait in waits if wait is not None), default=None)


OVERLOADED: Final = 529
"""Of Anthropic: all its customers together are too many."""
TRANSIENT: Final = frozenset({408, 409, 425})
"""Statuses below 500 after which the same request may succeed later."""


def transient_error(
    name: str, response: httpx.Response, reason: str, *, transient: frozenset[int] = TRANSIENT
) -> LatentError | None:
    """The error of a response after which a retry may succeed; None if the request itself is refused."""
    status = response.status_code
    seconds = seconds_to_wait(response.headers.get("Retry-After"))
    if seconds is None:
        seconds = seconds_exhausted(response.headers)
    details = {} if seconds is None else {"retry_after": seconds}
    if status == 429:
        message = f"{name} limits requests (429): {reason}"
        return LimitReached(message, upstream_status=status, **details)
    if status >= 500 or status in transient:
        overloaded = status == OVERLOADED or (status == 503 and details)
        failed = UpstreamOverload if overloaded else UpstreamError
        return failed(f"{name} failed ({status}): {reason}", upstream_status=status, **details)
    return None


CONNECT_SECONDS: Final = 10.0
MAX_ERROR_BYTES: Final = 64 * 1024
"""The part of an error response that is read."""

Files = Sequence[tuple[str, tuple[str, bytes, str]]]
"""Form fields with the file's name, bytes and media type."""


@dataclass(frozen=True, slots=True)
class ModelServer:
    """A server: its name in errors, its address and its key."""

    name: str
    url: httpx.URL
    key: OwnKey
    refused: Callable[[int, str], LatentError]
    """Makes the error of a permanent refusal from the status and the server's text."""
    too_long: Callable[[int], LatentError]
    """Makes the error of a response over this many bytes."""
    transient: frozenset[int] = TRANSIENT


MAX_CAUSES: Final = 10


def connection_trouble(exc: httpx.HTTPError) -> str:
    """Why no connection was made: the system's reason, which the client's own error leaves out."""
    cause: BaseException | None = exc
    for _ in range(MAX_CAUSES):
        if cause is None:
            break
        if isinstance(cause, ConnectionRefusedError):
            return "it refuses connections"
        if isinstance(cause, BaseExceptionGroup):
            # One per address: a host without IPv6 fails there for another reason.
            refused = (e for e in cause.exceptions if isinstance(e, ConnectionRefusedError))
            cause = next(refused, cause.exceptions[0])
            continue
        cause = cause.__cause__ or cause.__context__
    return str(exc) or type(exc).__name__


class ModelHttpClient:
    """Requests to one address, without redirects and without proxies or credentials from the environment."""

    def __init__(
        self,
        server: ModelServer,
        *,
        connections: int,
        seconds: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """``seconds`` limits a whole request and its response; None leaves the limit to the caller. ``headers``: of all
        requests, in addition to the key's."""
        self._server = server
        self._seconds = seconds
        self._health = ServiceHealth()
        self.headers = httpx.Headers()
        """Of the last successful response."""
        self._headers = {"Accept-Encoding": "identity", **(headers or {}), **server.key.header}
        timeout = None if seconds is None else httpx.Timeout(seconds, connect=CONNECT_SECONDS)
        self._http = httpx.AsyncClient(
            trust_env=False,
            follow_redirects=False,
            timeout=timeout,
            limits=httpx.Limits(max_connections=connections),
        )

    async def post_json(self, body: bytes, *, max_bytes: int, media_type: str | None = None) -> Any:
        """Returns the parsed JSON response. With ``media_type``, one with another ``Content-Type`` is an error."""
        request = self._post(body, {"Content-Type": "application/json"})
        return await self._answer(request, max_bytes, media_type)

    async def events(
        self, body: bytes, *, max_bytes: int, deadline: float
    ) -> AsyncGenerator[str, None]:
        """The data of each server-sent event of the response, when it comes. ``deadline`` of the last one is in the
        event loop's time."""
        headers = {"Content-Type": "application/json", "Accept": MEDIA_TYPE}
        with self._named_errors():
            async with asyncio.timeout_at(deadline):
                response = await self._http.send(self._post(body, headers), stream=True)
            async with aclosing(response):
                if response.status_code != 200:
                    async with asyncio.timeout_at(deadline):
                        raise self._error(response, await self._read(response, max_bytes))
                self._check_media_type(response, MEDIA_TYPE)
                pieces = self._pieces(response, max_bytes, deadline)
                async with aclosing(pieces), aclosing(event_data(pieces)) as events:
                    async for data in events:
                        yield data
        self._health.succeeded()

    async def _pieces(
        self, response: httpx.Response, max_bytes: int, deadline: float
    ) -> AsyncGenerator[bytes, None]:
        size = 0
        pieces = response.aiter_bytes()
        while True:
            async with asyncio.timeout_at(deadline):
                piece = await anext(pieces, None)
            if piece is None:
                return
            size += len(piece)
            if size > max_bytes:
                raise self._server.too_long(max_bytes)
            yield piece

    def _post(self, body: bytes, headers: dict[str, str]) -> httpx.Request:
        headers = {**self._headers, **headers}
        return self._http.build_request("POST", self._server.url, content=body, headers=headers)

    async def get_json(self, *, max_bytes: int) -> Any:
        request = self._http.build_request("GET", self._server.url, headers=self._headers)
        return await self._answer(request, max_bytes)

    async def post_form(
        self,
        fields: dict[str, str],
        files: Files,
        *,
        max_bytes: int,
        media_type: str | None = None,
    ) -> Any:
        """Like ``post_json``, for a form with files."""
        url, headers = self._server.url, self._headers
        request = self._http.build_request("POST", url, data=fields, files=files, headers=headers)
        return await self._answer(request, max_bytes, media_type)

    def timed_out(self) -> UpstreamTimeout:
        """The error of a request without a response in time."""
        return self._health.timeout(f"{self._server.name} did not answer within its deadline")

    async def close(self) -> None:
        await self._http.aclose()

    async def _answer(
        self, request: httpx.Request, max_bytes: int, media_type: str | None = None
    ) -> Any:
        with self._named_errors():
            async with asyncio.timeout(self._seconds):
                answer = await self._send(request, max_bytes, media_type)
        self._health.succeeded()
        return answer

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Raise our errors in place of the client's."""
        name = self._server.name
        try:
            yield
        except httpx.ConnectTimeout as exc:
            raise ServiceUnreachable(
                f"{name} cannot be reached within {CONNECT_SECONDS:g} s"
            ) from exc
        except (TimeoutError, httpx.TimeoutException) as exc:
            raise self.timed_out() from exc
        except httpx.HTTPError as exc:
            if isinstance(exc, httpx.ConnectError):
                why = self._server.key.hidden_in(connection_trouble(exc))
                raise ServiceUnreachable(f"{name} cannot be reached: {why}") from exc
            why = self._server.key.hidden_in(str(exc)) or type(exc).__name__
            raise self._health.closed(f"{name} closed the connection: {why}", why) from exc

    async def _send(self, request: httpx.Request, max_bytes: int, media_type: str | None) -> Any:
        async with aclosing(await self._http.send(request, stream=True)) as response:
            content = await self._read(response, max_bytes)
        if response.status_code != 200:
            raise self._error(response, content)
        if media_type is not None:
            self._check_media_type(response, media_type)
        self.headers = response.headers
        try:
            return _parsed(content)
        except (ValueError, RecursionError) as exc:
            name = self._server.name
            why = (
                _without_markup(content).decode("utf-8", "replace") if _PAGE.match(content) else exc
            )
            raise MalformedAnswer(f"{name} sent a response that is not valid JSON: {why}") from exc

    def _check_media_type(self, response: httpx.Response, expected: str) -> None:
        given = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if given != expected:
            shown = self._server.key.hidden_in(given) or "none"
            raise MalformedAnswer(
                f"{self._server.name} sent the wrong content type: {shown}, not {expected}"
            )

    async def _read(self, response: httpx.Response, max_bytes: int) -> bytes:
        success = response.status_code == 200
        content = bytearray()
        async for piece in response.aiter_bytes():
            content += piece
            if success and len(content) > max_bytes:
                raise self._server.too_long(max_bytes)
            if not success and len(content) > MAX_ERROR_BYTES:
                break
        return bytes(content)

    def _error(self, response: httpx.Response, content: bytes) -> LatentError:
        server = self._server
        reason = server.key.redacted_text(_without_markup(content))
        error = transient_error(server.name, response, reason, transient=server.transient)
        return error or server.refused(response.status_code, reason)


_PAGE: Final = re.compile(rb"\s*<(?:!doctype\s+)?html\b", re.I)
_TITLE: Final = re.compile(rb"<title[^>]*>([^<]{1,200})", re.I)


def _without_markup(content: bytes) -> bytes:
    """The title of an HTML page, as proxies send it; anything else as it is."""
    if not _PAGE.match(content):
        return content
    title = _TITLE.search(content)
    return b"an HTML page" + (b" titled " + title[1].strip() if title else b"")


def _parsed(content: bytes) -> Any:
    """The slow parser accepts ``NaN``, which some servers send, so that a later check can name it in its error."""
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return json.loads(content)
