"""Fetches one page over HTTP: the guard checks every address, redirects are followed explicitly, and bytes and time
are bounded.

No cookies, no proxies, no settings from the environment, and no name is resolved twice: the connection goes to the
address that the guard has checked, with the requested host name.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Final

import httpx

from latent_core.domain.errors import (
    Forbidden,
    IngestFailed,
    Invalid,
    OutOfSpace,
    TimedOut,
    TooLarge,
)
from latent_core.domain.ids import Sha256
from latent_core.domain.text import trouble
from latent_core.domain.web_address import WebAddress
from latent_core.ingest.accept import Validators
from latent_workers.fetch import responses
from latent_workers.fetch.guard import AddressGuard
from latent_workers.fetch.responses import ACCEPTED, inflater_for

USER_AGENT: Final = "latent-containers/0.1 (fetches single pages at its user's request)"
MAX_REDIRECTS: Final = 3
MAX_CONNECTIONS: Final = 4
"""Addresses of a host that are tried if they do not answer."""
CONNECT_SECONDS: Final = 10.0
SILENCE_SECONDS: Final = 30.0
MAX_VALIDATOR: Final = 512

_ACCEPT: Final = "text/html,application/xhtml+xml,application/pdf;q=0.9,*/*;q=0.8"
_TIMEOUT: Final = {
    "connect": CONNECT_SECONDS,
    "read": SILENCE_SECONDS,
    "write": SILENCE_SECONDS,
    "pool": CONNECT_SECONDS,
}

Checkpoint = Callable[[], Awaitable[None]]


async def _nothing() -> None:
    """No checkpoint."""


@dataclass(frozen=True, slots=True)
class Download:
    """A page in a temporary file, which the caller removes."""

    path: Path
    sha256: Sha256
    bytes: int
    url: WebAddress
    """Its address after redirects."""
    content_type: str
    etag: str | None
    last_modified: str | None


class WebFetcher:
    """Fetches single pages into ``folder``, each of at most ``limit`` bytes within ``seconds``."""

    def __init__(
        self,
        guard: AddressGuard,
        folder: Path,
        *,
        limit: int,
        seconds: float,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._guard = guard
        self._folder = folder
        self._limit = limit
        self._seconds = seconds
        self._tls = tls or httpx.create_ssl_context(trust_env=False)

    async def get(
        self,
        address: WebAddress,
        known: Validators | None = None,
        checkpoint: Checkpoint = _nothing,
    ) -> Download | None:
        """The page at ``address``; None if it has not changed since ``known``.

        Transient errors: ``Unavailable``, ``TimedOut``, ``RateLimited``. Final errors: ``Forbidden`` (the guard),
        ``IngestFailed`` (no such page), ``TooLarge``.
        """
        try:
            async with asyncio.timeout(self._seconds):
                return await self._follow(address, known, checkpoint)
        except TimeoutError as exc:
            raise TimedOut(
                f"{address} was not fetched within {self._seconds:g} s (LLC_FETCH_SECONDS)"
            ) from exc

    async def _follow(
        self, address: WebAddress, known: Validators | None, checkpoint: Checkpoint
    ) -> Download | None:
        for _ in range(MAX_REDIRECTS + 1):
            await checkpoint()
            async with self._requested(address, known) as response:
                location = responses.redirect(response)
                if location is None:
                    if _was_given(known, address) and responses.unchanged(response):
                        return None
                    responses.check(response, address)
                    return await self._download(response, address, checkpoint)
            address = _redirected(address, location)
        raise IngestFailed(
            f"{address} has more than {MAX_REDIRECTS} redirects: use their final address"
        )

    @asynccontextmanager
    async def _requested(
        self, address: WebAddress, known: Validators | None
    ) -> AsyncIterator[httpx.Response]:
        """The start of a response, from the first of the host's addresses that accepts a connection."""
        ips = await self._guard.admit(address)
        headers = _headers(address, known)
        for last, ip in _marked(ips[:MAX_CONNECTIONS]):
            transport = httpx.AsyncHTTPTransport(verify=self._tls, trust_env=False)
            async with transport:
                try:
                    response = await transport.handle_async_request(_request(address, ip, headers))
                except (httpx.ConnectError, httpx.ConnectTimeout) as exc:
                    if not last and responses.certificate_trouble(exc) is None:
                        continue
                    raise responses.no_connection(address, exc) from exc
                except httpx.HTTPError as exc:
                    raise responses.broken(address, exc) from exc
                try:
                    yield response
                finally:
                    await response.aclose()
            return

    async def _download(
        self, response: httpx.Response, address: WebAddress, checkpoint: Checkpoint
    ) -> Download:
        length = response.headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._limit:
            raise self._too_large(address)
        with NamedTemporaryFile(dir=self._folder, prefix="fetch-", delete=False) as file:
            path = Path(file.name)
            try:
                sha256, size = await self._write(response, file, address, checkpoint)
            except BaseException:
                await asyncio.to_thread(path.unlink, missing_ok=True)
                raise
        return Download(
            path=path,
            sha256=sha256,
            bytes=size,
            url=address,
            content_type=_line(response.headers.get("content-type")) or "",
            etag=_line(response.headers.get("etag")),
            last_modified=_line(response.headers.get("last-modified")),
        )

    async def _write(
        self,
        response: httpx.Response,
        file: IO[bytes],
        address: WebAddress,
        checkpoint: Checkpoint,
    ) -> tuple[Sha256, int]:
        sink = _Sink(file, self._limit, response.headers.get("content-encoding", ""))
        try:
            async for piece in response.aiter_raw():
                await checkpoint()
                if not await asyncio.to_thread(sink.take, piece):
                    raise self._too_large(address)
        except httpx.HTTPError as exc:
            raise responses.broken(address, exc) from exc
        await asyncio.to_thread(sink.close)
        return Sha256(sink.digest.hexdigest()), sink.size

    def _too_large(self, address: WebAddress) -> TooLarge:
        return TooLarge(
            f"{address} has more than {self._limit} bytes; the operator can raise LLC_MAX_UPLOAD_BYTES"
        )


class _Sink:
    """Writes, decodes, hashes and counts the bytes, in a thread."""

    def __init__(self, file: IO[bytes], limit: int, encoding: str) -> None:
        self._file = file
        self._limit = limit
        self._inflater = inflater_for(encoding)
        self.digest = hashlib.sha256()
        self.size = 0

    def take(self, data: bytes) -> bool:
        """False above the limit; nothing beyond it is written."""
        return all(map(self._put, self._inflater.feed(data) if self._inflater else (data,)))

    def close(self) -> None:
        if self._inflater is not None:
            self._inflater.finish()
        try:
            self._file.flush()
        except OSError as exc:
            raise _disk_trouble(exc) from exc

    def _put(self, piece: bytes) -> bool:
        self.size += len(piece)
        if self.size > self._limit:
            return False
        self.digest.update(piece)
        try:
            self._file.write(piece)
        except OSError as exc:
            raise _disk_trouble(exc) from exc
        return True


def _disk_trouble(exc: OSError) -> OutOfSpace:
    return OutOfSpace(f"the page could not be written to the data directory: {exc.strerror}")


def _headers(address: WebAddress, known: Validators | None) -> dict[str, str]:
    headers = {
        "Host": address.authority,
        "User-Agent": USER_AGENT,
        "Accept": _ACCEPT,
        "Accept-Encoding": ACCEPTED,
        "Connection": "close",
    }
    if known is not None and _was_given(known, address):
        if known.etag:
            headers["If-None-Match"] = known.etag
        if known.last_modified:
            headers["If-Modified-Since"] = known.last_modified
    return headers


def _was_given(known: Validators | None, address: WebAddress) -> bool:
    """A validator is only sent to the address that issued it."""
    return known is not None and known.final_url == str(address)


def _request(address: WebAddress, ip: str, headers: dict[str, str]) -> httpx.Request:
    """The request to ``ip`` with the host's name, which the certificate must match."""
    url = httpx.URL(
        scheme=address.scheme, host=ip, port=address.port, raw_path=address.target.encode("ascii")
    )
    extensions = {"timeout": _TIMEOUT, "sni_hostname": address.host}
    return httpx.Request("GET", url, headers=headers, extensions=extensions)


def _marked(ips: list[str]) -> list[tuple[bool, str]]:
    """Each address, and whether it is the last."""
    return [(index == len(ips), ip) for index, ip in enumerate(ips, start=1)]


def _redirected(address: WebAddress, location: str) -> WebAddress:
    try:
        return address.join(location)
    except Invalid as exc:
        raise Forbidden(f"{address} redirects to a forbidden address: {exc.message}") from exc


def _line(value: str | None) -> str | None:
    """A header value that can be stored and sent again."""
    if value is None or not value or len(value) > MAX_VALIDATOR or trouble(value) is not None:
        return None
    return value if value.isascii() else None
