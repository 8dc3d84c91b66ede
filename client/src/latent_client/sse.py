"""Server-sent events, read as they come (WHATWG HTML, "Server-sent events")."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Final

from latent_core.domain.errors import Unavailable

MAX_LINE_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServerEvent:
    event: str
    data: str
    id: str | None


async def read_events(chunks: AsyncIterator[bytes]) -> AsyncGenerator[ServerEvent]:
    """Events of a stream of bytes; one that the end of the stream cuts off is dropped."""
    event, event_id = "message", None
    data: list[str] = []
    async for line in read_lines(chunks):
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line and data:
            yield ServerEvent(event, "\n".join(data), event_id)
        if not line:
            event, event_id, data = "message", None, []
        elif name == "event":
            event = value
        elif name == "data":
            data.append(value)
        elif name == "id":
            event_id = value


async def read_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Complete lines without their ends. Split at LF only: JSON may hold the other separators."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r").decode("utf-8", errors="replace")
        if len(rest) > MAX_LINE_BYTES:
            raise Unavailable(f"an event stream sent a line of more than {MAX_LINE_BYTES} bytes")
