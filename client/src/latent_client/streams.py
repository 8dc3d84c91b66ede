"""Server-sent events (WHATWG HTML), and a job's history as it happens: one stream, resumed where it broke off."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import orjson
from pydantic import BaseModel, ValidationError

from latent_client.transport import Transport
from latent_core.domain.errors import TimedOut, Unavailable
from latent_core.domain.job import JobView

END: Final = "end"
MAX_LINE_BYTES: Final = 4 * 1024 * 1024
QUIET_SECONDS: Final = 60.0
"""Silence after which the stream is opened again."""
PAUSES: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds after a connection that brought nothing, in a row: long enough for a gateway to restart."""


class JobNews(BaseModel):
    """Something that happened to a job, or (``progress``) how far it has come."""

    event: str
    """``end`` is the last: the job is in a final state."""
    id: int | None = None
    """Of a line of the job's history."""
    at: datetime | None = None
    details: dict[str, Any] = {}
    job: JobView | None = None
    """The job at that time; None when it no longer exists."""


class JobEvents:
    """What happens to one job, each event once and in order, to the one that ends it."""

    def __init__(self, transport: Transport, job_id: int, timeout_seconds: float) -> None:
        self._transport = transport
        self._job_id = job_id
        self._deadline = time.monotonic() + timeout_seconds
        self._last: str | None = None
        self._fruitless = 0

    async def __aiter__(self) -> AsyncIterator[JobNews]:
        while True:
            async with aclosing(self._attempt()) as attempt:
                async for news in attempt:
                    yield news
                    if news.event == END:
                        return
            self._check_deadline()
            await asyncio.sleep(PAUSES[min(self._fruitless, len(PAUSES)) - 1])

    async def _attempt(self) -> AsyncGenerator[JobNews]:
        """One connection, to its end or to where it breaks off."""
        headers = {"Accept": "text/event-stream"}
        if self._last is not None:
            headers["Last-Event-ID"] = self._last
        path = f"/v1/jobs/{self._job_id}/events"
        self._fruitless += 1
        try:
            async with (
                self._transport.stream(
                    path, headers=headers, read_seconds=QUIET_SECONDS
                ) as response,
                aclosing(read_events(response.aiter_bytes())) as events,
            ):
                async for event in events:
                    self._check_deadline()
                    news = self._news(event)
                    self._fruitless, self._last = 1, event.id or self._last
                    yield news
        except TimedOut:
            self._fruitless = 1  # a job that waits is silent
        except Unavailable:
            if self._fruitless > len(PAUSES):
                raise

    def _check_deadline(self) -> None:
        if time.monotonic() > self._deadline:
            raise TimedOut(f"job {self._job_id} did not end in time; it goes on")

    def _news(self, event: ServerEvent) -> JobNews:
        try:
            data: dict[str, Any] = orjson.loads(event.data)
            number = int(event.id) if event.id else None
            return JobNews.model_validate({**data, "event": event.event, "id": number})
        except (ValueError, TypeError, ValidationError) as exc:
            raise Unavailable(f"the history of job {self._job_id} cannot be read: {exc}") from exc


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
