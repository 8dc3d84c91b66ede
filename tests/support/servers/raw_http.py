"""Requests and responses of the stand-ins for model servers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs, urlsplit

_REASONS: Final = {
    200: "OK",
    307: "Temporary Redirect",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    413: "Payload Too Large",
    422: "Unprocessable Entity",
    429: "Too Many Requests",
    500: "Internal Server Error",
    503: "Service Unavailable",
    529: "Overloaded",
}
MAX_HEADER: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    """Names in small letters."""
    body: bytes


@dataclass(frozen=True, slots=True)
class HttpReply:
    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    media_type: str = "application/json"

    def encoded(self) -> bytes:
        lines = [
            f"HTTP/1.1 {self.status} {_REASONS[self.status]}",
            f"Content-Type: {self.media_type}",
            f"Content-Length: {len(self.body)}",
            *(f"{name}: {value}" for name, value in self.headers.items()),
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + self.body


@dataclass(frozen=True, slots=True)
class StreamedReply:
    """A response in pieces, each sent by itself."""

    pieces: Iterable[bytes]
    media_type: str = "text/event-stream"
    cut: bool = False
    """Whether the connection closes before the end of the response."""
    pause: Callable[[], Awaitable[None]] | None = None
    """Awaited before each piece."""

    async def send(self, writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {self.media_type}\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head.encode())
        for piece in self.pieces:
            if self.pause is not None:
                await self.pause()
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
        if not self.cut:
            writer.write(b"0\r\n\r\n")


async def read_request(reader: asyncio.StreamReader) -> HttpRequest | None:
    """The next request of a connection; None when the client has closed it."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    method, target, _ = first.split(" ")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    url = urlsplit(target)
    return HttpRequest(method, url.path, parse_qs(url.query), headers, body)


class HttpServer:
    """Serves connections on 127.0.0.1, one request after the other. ``answer`` returns None to hang up."""

    def __init__(
        self, answer: Callable[[HttpRequest], Awaitable[HttpReply | StreamedReply | None]]
    ) -> None:
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        if self._server is None:
            raise RuntimeError("the server is not started")
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, limit=MAX_HEADER)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("connections are served in tasks")
        self._connections.add(task)
        try:
            while request := await read_request(reader):
                answer = await self._answer(request)
                if answer is None:
                    break
                if isinstance(answer, StreamedReply):
                    await answer.send(writer)
                else:
                    writer.write(answer.encoded())
                await writer.drain()
                if isinstance(answer, StreamedReply) and answer.cut:
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client has gone, or the server closes
        finally:
            self._connections.discard(task)
            writer.close()
