"""Server-sent events (WHATWG HTML): those of a job as one stream that resumes after a broken connection, and the status
of documents."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from latent_client.transport import Transport
from latent_core.domain.errors import TimedOut, Unavailable
from latent_core.domain.job import JobView

END: Final = "end"
MAX_LINE_BYTES: Final = 4 * 1024 * 1024
QUIET_SECONDS: Final = 60.0
"""Silence after which the stream is reopened."""
PAUSES: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds after successive connections without an event. Their sum lets a gateway restart."""


class JobNews(BaseModel):
    """An event of a job, or its progress (``progress``)."""

    event: str
    """``end`` is the last event: the job is in a final state."""
    id: int | None = None
    """Number of the event in the job's history; None for progress."""
    at: datetime | None = None
    details: dict[str, Any] = {}
    job: JobView | None = None
    """The job at that time; None if it no longer exists."""


class JobEvents:
    """The events of one job, each once and in order, until its end."""

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
        """Events of one connection, until it ends or breaks."""
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
            self._fruitless = 1  # a waiting job sends no events
        except Unavailable:
            if self._fruitless > len(PAUSES):
                raise

    def _check_deadline(self) -> None:
        if time.monotonic() > self._deadline:
            raise TimedOut(f"job {self._job_id} did not end in time; it continues")

    def _news(self, event: ServerEvent) -> JobNews:
        try:
            data: dict[str, Any] = orjson.loads(event.data)
            number = int(event.id) if event.id else None
            return JobNews.model_validate({**data, "event": event.event, "id": number})
        except (ValueError, TypeError, ValidationError) as exc:
            raise Unavailable(f"the events of job {self._job_id} cannot be parsed: {exc}") from exc


@dataclass(frozen=True, slots=True)
class ServerEvent:
    event: str
    data: str
    id: str | None


async def read_events(chunks: AsyncIterator[bytes]) -> AsyncGenerator[ServerEvent]:
    """Events of a byte stream. An incomplete event at the end is dropped."""
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
    """Complete lines without their line ends. Split at LF only: JSON may contain other separators."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r").decode("utf-8", errors="replace")
        if len(rest) > MAX_LINE_BYTES:
            raise Unavailable(
                f"the event stream has a line longer than {MAX_LINE_BYTES} bytes; is LLC_URL a gateway?"
            )


Status = TypeVar("Status", bound=BaseModel)


async def follow_documents(
    transport: Transport, path: str, body: dict[str, object], form: type[Status], unfinished: str
) -> AsyncIterator[Status]:
    """The status of each document when it changes, until all jobs have ended. ``Unavailable`` says ``unfinished`` if the
    stream ends before."""
    async with (
        transport.stream(path, method="POST", json=body, read_seconds=QUIET_SECONDS) as response,
        aclosing(read_events(response.aiter_bytes())) as events,
    ):
        async for event in events:
            if event.event == "document":
                yield _status(event.data, form)
            elif event.event == "end":
                return
    raise Unavailable(unfinished)


def _status(data: str, form: type[Status]) -> Status:
    try:
        return form.model_validate_json(data)
    except ValidationError as exc:
        raise Unavailable(f"the state of a document cannot be parsed: {exc}") from exc
