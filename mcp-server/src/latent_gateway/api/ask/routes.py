"""``POST /v1/containers/ask``: a question, answered from hits by the language model that the containers permit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, suppress
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from latent_core.domain.errors import LatentError, Unavailable
from latent_core.runtime.tasks import ended
from latent_core.wire.ask import AskAnswer, AskRequest
from latent_core.wire.base import Envelope
from latent_gateway.api.ask.answer import AskEvent, Question
from latent_gateway.api.sse import (
    KEEP_ALIVE,
    MEDIA_TYPE,
    NOT_STORED,
    SECONDS_OF_SILENCE,
    described,
    written,
)
from latent_gateway.auth.principal import Principal
from latent_gateway.context import BlobLinks, Caller, Gateway, RequestId, Shared, SignedLinks
from latent_gateway.envelope import json_answer

router = APIRouter(tags=["search"])
logger = logging.getLogger(__name__)

READ_SECONDS: Final = 60.0
"""For a slow client to read what is left of its answer."""
CLIENT_CLOSED: Final = 499
"""The client has gone."""
EVENTS: Final = described(
    "With stream: server-sent events `sources`, `text`, `citations`, then `end` or `error`"
)


@router.post("/v1/containers/ask", response_model=AskAnswer, responses=EVENTS)
async def ask(
    body: AskRequest,
    request: Request,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    links: SignedLinks,
) -> Response:
    """Answer a question from the hits of a search, by the language model that the containers' manifests permit."""
    question = Question(body, shared, caller, request_id, links)
    async with AsyncExitStack() as held:
        await held.enter_async_context(shared.questions.slot(caller))
        if not body.stream:
            answer = await _unless_hung_up(question, request)
            return (
                Response(status_code=CLIENT_CLOSED)
                if answer is None
                else json_answer(answer, request_id)
            )
        events = RunningEvents(question)
        held.push_async_callback(events.close)
        await events.begin()
        seconds = shared.settings.ask_seconds + READ_SECONDS
        return AskStream(_written(events, request_id), held.pop_all(), seconds)


async def answered(
    body: AskRequest, shared: Gateway, caller: Principal, request_id: str, links: BlobLinks
) -> AskAnswer:
    """The whole answer, for callers without a stream."""
    question = Question(body, shared, caller, request_id, links)
    async with shared.questions.slot(caller):
        return await _whole(question)


async def _whole(question: Question) -> AskAnswer:
    async with aclosing(question.events()) as events:
        async for _ in events:
            pass
    return question.answer


async def _unless_hung_up(question: Question, request: Request) -> AskAnswer | None:
    """The answer; None if the client closes the connection, which also ends the call of the model."""
    answering = asyncio.create_task(_whole(question), name="ask")
    leaving = asyncio.create_task(_hung_up(request), name="ask-client")
    try:
        await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return await answering if answering.done() else None
    finally:
        await ended(answering)
        await ended(leaving)


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class RunningEvents:
    """The events of a question in a task of their own, so that a silent model keeps no connection silent."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._queue: asyncio.Queue[AskEvent | None] = asyncio.Queue()
        self._task = asyncio.create_task(self._run(), name="ask")
        self._first: AskEvent | None = None

    async def _run(self) -> None:
        try:
            async with aclosing(self._question.events()) as events:
                async for event in events:
                    self._queue.put_nowait(event)
        finally:
            self._queue.put_nowait(None)

    async def begin(self) -> None:
        """Wait for the first event. An error until then is raised, so that it is the status of the response."""
        self._first = await self._queue.get()
        if self._first is None:
            await self._task

    async def events(self) -> AsyncGenerator[AskEvent | None]:
        """The events; None after a silence."""
        event = self._first
        while event is not None:
            yield event
            while True:
                try:
                    async with asyncio.timeout(SECONDS_OF_SILENCE):
                        event = await self._queue.get()
                        break
                except TimeoutError:
                    yield None
        await self._task

    async def close(self) -> None:
        await ended(self._task)


async def _written(running: RunningEvents, request_id: str) -> AsyncGenerator[bytes]:
    try:
        async with aclosing(running.events()) as events:
            async for event in events:
                yield KEEP_ALIVE if event is None else written(event.name, event.data)
    except LatentError as exc:
        yield written("error", _error(exc, request_id))
    except Exception:  # the outermost frame of a stream: it logs and answers
        logger.exception("ask_failed", extra={"request_id": request_id})
        message = f"internal error: the gateway's log has the cause under request {request_id}"
        yield written("error", _error(Unavailable(message), request_id))


def _error(error: LatentError, request_id: str) -> dict[str, Any]:
    return Envelope(request_id=request_id, issues=[error.issue()]).model_dump(mode="json")


class AskStream(StreamingResponse):
    """A stream that ends its question, and the call of the model, however it ends itself."""

    def __init__(
        self, content: AsyncGenerator[bytes], held: AsyncExitStack, seconds: float
    ) -> None:
        """``seconds``: after which a client that does not read it is cut off."""
        super().__init__(content, media_type=MEDIA_TYPE, headers=NOT_STORED)
        self._held = held
        self._seconds = seconds

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._held:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._seconds):
                    await super().__call__(scope, receive, send)
