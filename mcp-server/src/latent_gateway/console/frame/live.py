"""Parts of pages that the server sends again when they change, as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from fastapi.responses import StreamingResponse

from latent_core.domain.errors import LatentError
from latent_gateway.api.sse import KEEP_ALIVE, CountedStream, Rhythm
from latent_gateway.console.frame.console_session import ConsoleSession
from latent_gateway.console.frame.view import HEADERS
from latent_gateway.context import Gateway

LONGEST_SECONDS: Final = 1800.0
"""Browsers connect again by themselves."""


@dataclass(frozen=True, slots=True)
class LiveFragment:
    html: str
    ended: bool
    """No more updates will come."""


Look = Callable[[], Awaitable[LiveFragment]]
"""Renders the current state, if the user may still see it; else raises ``LatentError``."""


def live(shared: Gateway, session: ConsoleSession, look: Look) -> StreamingResponse:
    """Server-sent events: ``part`` with HTML after each change, ``end`` at the end."""
    shared.streams.take(session.principal)
    return CountedStream(_parts(shared, look), shared.streams, session.principal, HEADERS)


async def _parts(shared: Gateway, look: Look) -> AsyncIterator[bytes]:
    now = asyncio.get_running_loop().time
    until, rhythm, sent = now() + LONGEST_SECONDS, Rhythm(now()), ""
    while now() < until and not shared.stack.closing.is_set():
        try:
            drawn = await look()
        except LatentError:  # the session or permission has ended: a reload of the page shows why
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
