"""HTTP requests to one gateway: address, token, timeouts, retries, and errors as classes of the core."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError
from typing_extensions import override

from latent_client.errors import from_failure, from_response
from latent_client.retry import OnRetry, Retries
from latent_core import __version__
from latent_core.domain.errors import Invalid, Unavailable
from latent_core.domain.web_address import is_loopback
from latent_core.wire.base import PagedEnvelope

DEFAULT_URL: Final = "http://127.0.0.1:7801"
PAGE: Final = 200
P = TypeVar("P", bound=PagedEnvelope)

CONNECT_SECONDS: Final = 5.0
SERVICE_UNAVAILABLE: Final = 503
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "PUT", "DELETE"})

Query = Mapping[str, str | int | list[str] | None]
A = TypeVar("A", bound=BaseModel)


class Blob(BaseModel):
    """Bytes behind a signed link."""

    mime: str
    content: bytes


class LateTls(httpx.AsyncBaseTransport):
    """Https with the usual checks. The certificates are read, which takes longer than a search, for the first request."""

    def __init__(self) -> None:
        self._checked: httpx.AsyncHTTPTransport | None = None

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self._checked is None:
            self._checked = httpx.AsyncHTTPTransport(trust_env=False)
        return await self._checked.handle_async_request(request)

    @override
    async def aclose(self) -> None:
        if self._checked is not None:
            await self._checked.aclose()


def _connections(url: httpx.URL) -> dict[str, Any]:
    """How to connect. For a loopback address, proxies of the environment are ignored."""
    if not is_loopback(url.host):
        return {}
    if url.scheme == "https":
        return {"trust_env": False}
    # The first one gets http:// only, so it has no certificate to check.
    plain = httpx.AsyncHTTPTransport(verify=False, trust_env=False)
    return {"trust_env": False, "transport": plain, "mounts": {"https://": LateTls()}}


class Transport:
    """A connection pool to one gateway. Its owner closes it. ``on_retry`` is called before a call is sent again."""

    def __init__(
        self,
        url: str,
        token: str | None,
        timeout_seconds: float,
        on_retry: OnRetry | None = None,
        batch: str | None = None,
    ) -> None:
        self.url = _checked(url)
        self._retry_seconds = timeout_seconds
        self._on_retry = on_retry
        self._answered = False
        headers = {"User-Agent": f"latent-client/{__version__}"}
        if batch is not None:
            headers["X-Batch-Id"] = batch
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if is_loopback(self.url.host):
            headers["Accept-Encoding"] = "identity"  # compression costs more than it saves
        self._http = httpx.AsyncClient(
            base_url=self.url,
            headers=headers,
            timeout=httpx.Timeout(timeout_seconds, connect=CONNECT_SECONDS),
            **_connections(self.url),
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def ask(self, answer: type[A], method: str, path: str, **parts: Any) -> A:
        """Send a request and parse the body as ``answer``. Raises errors of the core."""
        response = await self.call(method, path, **parts)
        try:
            return answer.model_validate_json(response.content)
        except ValidationError as exc:
            what = f"this client cannot parse the answer to {method} {response.request.url}"
            raise Unavailable(f"{what}; use client and gateway of the same release") from exc

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        json: Any = None,
        body: Callable[[], AsyncIterator[bytes]] | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool | None = None,
        accept: frozenset[int] = frozenset(),
        read_seconds: float | None = None,
    ) -> httpx.Response:
        """Send a request. Returns the answer if its status is 2xx or in ``accept``.

        A ``repeatable`` call is sent again if the gateway is not available (see ``retry``); by default the method
        decides. ``read_seconds`` is the minimum read timeout.
        """

        def build() -> httpx.Request:
            return self._http.build_request(
                method,
                path,
                params=_given(query),
                json=json,
                content=body() if body is not None else None,
                headers=headers,
                timeout=self._timeout_for(read_seconds),
            )

        safe = method in SAFE_METHODS if repeatable is None else repeatable
        response = await self._send(build, accept) if safe else await self._once(build())
        if response.is_success or response.status_code in accept:
            return response
        raise from_response(response)

    def _timeout_for(self, read_seconds: float | None) -> httpx.Timeout:
        """The client's timeout, with a read timeout of at least ``read_seconds``."""
        own = self._http.timeout
        if read_seconds is None or own.read is None or own.read >= read_seconds:
            return own
        return httpx.Timeout(connect=own.connect, read=read_seconds, write=own.write, pool=own.pool)

    async def fetch(self, url: str) -> httpx.Response:
        """The answer of a signed link. The token is not sent, since the link may point to another host."""
        checked = _checked(url)

        def build() -> httpx.Request:
            request = self._http.build_request("GET", checked)
            request.headers.pop("Authorization", None)
            return request

        response = await self._send(build, frozenset())
        if response.is_success:
            return response
        raise from_response(response)

    @asynccontextmanager
    async def open_link(self, url: str, *, read_seconds: float) -> AsyncIterator[httpx.Response]:
        """The answer of a signed link with an unread body. The token is not sent."""
        timeout = httpx.Timeout(read_seconds, connect=CONNECT_SECONDS)
        request = self._http.build_request("GET", _checked(url), timeout=timeout)
        request.headers.pop("Authorization", None)
        try:
            response = await self._http.send(request, stream=True)
            try:
                if not response.is_success:
                    await response.aread()
                    raise from_response(response)
                yield response
            finally:
                await response.aclose()
        except httpx.HTTPError as exc:
            raise from_failure(exc, self._base) from exc

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        read_seconds: float,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        json: Any = None,
    ) -> AsyncIterator[httpx.Response]:
        """The answer of a request with an unread body."""
        timeout = httpx.Timeout(read_seconds, connect=CONNECT_SECONDS)
        try:
            async with self._http.stream(
                method, path, headers=headers, json=json, timeout=timeout
            ) as response:
                if not response.is_success:
                    await response.aread()
                    raise from_response(response)
                yield response
        except httpx.HTTPError as exc:
            raise from_failure(exc, self._base) from exc

    async def _send(
        self, build: Callable[[], httpx.Request], accept: frozenset[int]
    ) -> httpx.Response:
        """Send a call that may be repeated, until it is answered or the retries are used up."""
        retries = Retries(self._retry_seconds, answered=self._answered)
        while True:
            try:
                response = await self._once(build())
                if response.status_code != SERVICE_UNAVAILABLE or response.status_code in accept:
                    return response
                raise from_response(response)
            except Unavailable as error:
                notice = retries.after(error)
                if notice is None:
                    raise
            if self._on_retry is not None:
                self._on_retry(notice)
            await asyncio.sleep(notice.seconds)

    async def _once(self, request: httpx.Request) -> httpx.Response:
        try:
            response = await self._http.send(request)
        except httpx.HTTPError as exc:
            raise from_failure(exc, self._base) from exc
        self._answered = True
        return response

    @property
    def _base(self) -> str:
        return str(self.url).rstrip("/")


def _checked(url: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, ValueError) as exc:
        raise Invalid(
            f"'{url}' is not a valid URL: {exc}; use one like http://127.0.0.1:7801"
        ) from exc
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise Invalid(f"'{url}' is not a gateway URL; use one like http://127.0.0.1:7801")
    return parsed


def _given(query: Query | None) -> dict[str, str | int | list[str]]:
    return {name: value for name, value in (query or {}).items() if value is not None}


class ClientCalls:
    """Base of the mixins that the clients consist of."""

    _transport: Transport

    async def _pages(
        self, answer: type[P], path: str, /, **query: str | list[str] | None
    ) -> AsyncIterator[P]:
        cursor: str | None = None
        while True:
            params = {**query, "limit": PAGE, "cursor": cursor}
            page = await self._transport.ask(answer, "GET", path, query=params)
            yield page
            if page.next_cursor is None or page.next_cursor == cursor:
                return
            cursor = page.next_cursor


class GatewayClient(ClientCalls):
    """The connection of a client. Use it as an async context manager, or ``close`` it."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        token: str | None = None,
        *,
        timeout_seconds: float = 60.0,
        on_retry: OnRetry | None = None,
        batch: str | None = None,
    ) -> None:
        """``on_retry`` is called before a call is sent again: calls that may be repeated are, while the gateway is
        not available, for at most ``timeout_seconds``. ``batch``: 1 to 64 of ``A-Za-z0-9._-``; the jobs of all calls
        are then shown as one group."""
        self._transport = Transport(url, token, timeout_seconds, on_retry, batch)

    @property
    def url(self) -> str:
        """Address of the gateway, without a trailing slash."""
        return str(self._transport.url).rstrip("/")

    async def close(self) -> None:
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


def part(identifier: str) -> str:
    """``identifier`` quoted as one segment of a path."""
    return quote(identifier, safe="")
