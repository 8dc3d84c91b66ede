"""Parts of a page that change while somebody looks: drawn anew by the server, sent when they differ."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from fastapi.responses import StreamingResponse

from latent_core.domain.errors import LatentError
from latent_gateway.api.sse import KEEP_ALIVE, CountedStream, Rhythm
from latent_gateway.console.console_session import ConsoleSession
from latent_gateway.console.view import HEADERS
from latent_gateway.context import Gateway

LONGEST_SECONDS: Final = 1800.0
"""Browsers come back by themselves."""


@dataclass(frozen=True, slots=True)
class LiveFragment:
    html: str
    ended: bool
    """Nothing more will come."""


Look = Callable[[], Awaitable[LiveFragment]]
"""Draws the part as it is now, for whoever still may see it; raises ``LatentError`` when nobody may."""


def live(shared: Gateway, session: ConsoleSession, look: Look) -> StreamingResponse:
    """Server-sent events: ``part`` with HTML whenever it has changed, ``end`` when there will be no more."""
    shared.streams.take(session.principal)
    return CountedStream(_parts(shared, look), shared.streams, session.principal, HEADERS)


async def _parts(shared: Gateway, look: Look) -> AsyncIterator[bytes]:
    now = asyncio.get_running_loop().time
    until, rhythm, sent = now() + LONGEST_SECONDS, Rhythm(now()), ""
    while now() < until and not shared.stack.closing.is_set():
        try:
            drawn = await look()
        except (
            LatentError
        ):  # the session or the right has ended: the page itself says so when it is read again
            yield event("end", "")
            return
        if drawn.html != sent:
            yield event("part", drawn.html)
        if rhythm.looked(now(), changed=drawn.html != sent):
            yield KEEP_ALIVE
        sent = drawn.html
        if drawn.ended:
            yield event("end", "")
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(rhythm.pause):
                await shared.stack.closing.wait()


def event(name: str, text: str) -> bytes:
    """One event; a line of text is a line of data."""
    lines = "".join(f"data: {line}\n" for line in text.splitlines() or [""])
    return f"event: {name}\n{lines}\n".encode()
