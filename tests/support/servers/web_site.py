"""A web site on 127.0.0.1 that answers with exactly the bytes it is told: well, badly, slowly or never.

``async with WebSite() as site: site.page("/a", "<p>hello</p>"); … site.url("/a")``. Its name is resolved by nobody: a
test gives the fetcher a resolver, or an origin that is allowed (``site.origin``).
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

_MAX_HEADER: Final = 64 * 1024
_REASONS: Final = {200: "OK", 302: "Found", 304: "Not Modified", 404: "Not Found"}


@dataclass(frozen=True, slots=True)
class SiteRequest:
    """A request that came; header names in small letters."""

    path: str
    headers: Mapping[str, str]


Answer = Callable[[SiteRequest, asyncio.StreamWriter], Awaitable[None]]


@dataclass(slots=True)
class WebSite:
    """``host`` is the name in its addresses; it listens on 127.0.0.1."""

    host: str = "127.0.0.1"
    tls: ssl.SSLContext | None = None
    requests: list[SiteRequest] = field(default_factory=list)
    _answers: dict[str, Answer] = field(default_factory=dict)
    _server: asyncio.Server | None = None
    _open: dict[asyncio.Task[None], asyncio.StreamWriter] = field(default_factory=dict)
    _closing: asyncio.Event = field(default_factory=asyncio.Event)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", 0, limit=_MAX_HEADER, ssl=self.tls
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.set()
        if self._server is not None:
            self._server.close()
        for task, writer in list(self._open.items()):
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*self._open, return_exceptions=True)

    @property
    def port(self) -> int:
        if self._server is None:
            raise RuntimeError("the site is not open")
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def origin(self) -> str:
        return f"{self.host}:{self.port}"

    def url(self, path: str) -> str:
        return f"{'https' if self.tls else 'http'}://{self.origin}{path}"

    def page(
        self,
        path: str,
        body: bytes | str,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """What is answered at ``path`` from now on. A page with an etag is not sent again to who knows it."""
        data = body.encode() if isinstance(body, str) else body
        given = {"Content-Type": "text/html; charset=utf-8", **(headers or {})}

        async def answer(request: SiteRequest, writer: asyncio.StreamWriter) -> None:
            known = request.headers.get("if-none-match")
            if known is not None and known == given.get("ETag"):
                writer.write(head(304, {"ETag": known}))
                return
            writer.write(head(status, {"Content-Length": str(len(data))} | given) + data)

        self._answers[path] = answer

    def redirect(self, path: str, location: str, *, status: int = 302) -> None:
        self.page(path, "", status=status, headers={"Location": location})

    def raw(self, path: str, *pieces: bytes) -> None:
        """Exactly these bytes, then the end of the connection."""

        async def answer(_request: SiteRequest, writer: asyncio.StreamWriter) -> None:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()

        self._answers[path] = answer

    def stuck(self, path: str, *pieces: bytes) -> None:
        """These bytes, then nothing more until the site closes."""

        async def answer(_request: SiteRequest, writer: asyncio.StreamWriter) -> None:
            for piece in pieces:
                writer.write(piece)
            await writer.drain()
            await self._closing.wait()

        self._answers[path] = answer

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._open[task] = writer
            task.add_done_callback(self._open.pop)
        with (
            contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError),
            contextlib.closing(writer),
        ):
            request = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            pairs = (line.partition(": ") for line in request[1:] if line)
            site_request = SiteRequest(
                request[0].split(" ")[1], {name.lower(): v for name, _, v in pairs}
            )
            self.requests.append(site_request)
            answer = self._answers.get(site_request.path, _missing)
            await answer(site_request, writer)
            await writer.drain()


def head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [
        f"HTTP/1.1 {status} {_REASONS.get(status, 'Said')}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def _missing(_request: SiteRequest, writer: asyncio.StreamWriter) -> None:
    writer.write(head(404, {"Content-Length": "0"}))
