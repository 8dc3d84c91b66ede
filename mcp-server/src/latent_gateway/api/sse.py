"""Server-sent events: counted streams, their polling intervals, and the format of an event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, Final

import orjson
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from latent_core.domain.errors import NotFound
from latent_core.domain.job import JobState, JobView
from latent_core.queue import admin
from latent_core.stack import Stack
from latent_gateway.auth.principal import Principal
from latent_gateway.context import StreamLimiter

MEDIA_TYPE: Final = "text/event-stream"
SECONDS_BETWEEN_LOOKS: Final = 0.25
MAX_SECONDS_BETWEEN_LOOKS: Final = 1.0
SECONDS_OF_SILENCE: Final = 15.0
"""Then a comment is sent: proxies and clients close a silent connection."""
KEEP_ALIVE: Final = b": still here\n\n"
LONGEST_STREAM_SECONDS: Final = 6 * 3600.0
NOT_STORED: Final = {"Cache-Control": "no-store"}


class CountedStream(StreamingResponse):
    """A counted stream, given back however it ends, started or not."""

    def __init__(
        self,
        content: AsyncIterator[bytes],
        streams: StreamLimiter,
        whose: Principal,
        headers: Mapping[str, str] = NOT_STORED,
    ) -> None:
        super().__init__(content, media_type=MEDIA_TYPE, headers=headers)
        self._streams, self._whose = streams, whose

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.give_back(self._whose)


class Rhythm:
    """Polling intervals in seconds: short after a change, then growing."""

    def __init__(self, now: float) -> None:
        self.pause = SECONDS_BETWEEN_LOOKS
        self._spoke = now

    def looked(self, now: float, *, changed: bool) -> bool:
        """Note a result; returns whether the stream has been silent for too long."""
        if changed:
            self.pause, self._spoke = SECONDS_BETWEEN_LOOKS, now
            return False
        self.pause = min(2 * self.pause, MAX_SECONDS_BETWEEN_LOOKS)
        silent = now - self._spoke >= SECONDS_OF_SILENCE
        if silent:
            self._spoke = now
        return silent


def written(name: str, data: Mapping[str, Any], event_id: int | None = None) -> bytes:
    """One event; ``data`` as JSON."""
    head = f"event: {name}\n" + (f"id: {event_id}\n" if event_id is not None else "")
    return head.encode() + b"data: " + orjson.dumps(data) + b"\n\n"


def described(description: str) -> dict[int | str, dict[str, Any]]:
    """The description of such a response in the schema."""
    event = {
        "type": "object",
        "description": "One event; data is JSON",
        "properties": {name: {"type": "string"} for name in ("event", "id", "data")},
    }
    return {200: {"description": description, "content": {MEDIA_TYPE: {"schema": event}}}}


FIRST_PAUSE_SECONDS: Final = 0.03
LONGEST_PAUSE_SECONDS: Final = 0.2
OPEN: Final = frozenset({JobState.QUEUED, JobState.RUNNING})


async def ended(stack: Stack, job_id: int, seconds: float) -> JobView | None:
    """The ended job; None if it has not ended in time, if the gateway stops, or if the job is unknown."""
    loop = asyncio.get_running_loop()
    until, pause = loop.time() + seconds, FIRST_PAUSE_SECONDS
    while loop.time() < until and not stack.closing.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(min(pause, until - loop.time())):
                await stack.closing.wait()
        try:
            async with stack.db.transaction() as conn:
                job = await admin.get(conn, job_id)
        except NotFound:
            return None
        if job.state not in OPEN:
            return job
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
    return None
