"""A language model over real HTTP that answers by script, records what it was shown, and can lie.

``async with LanguageModelServer(key="sk") as server: … server.base_url``. It serves chat completions, Anthropic's
messages and transcriptions, each as strictly as its original. An answer is, in this order: the next one of ``script``, the
first of ``rules`` whose words are in the prompt, else ``answer`` (by default sentences of the prompt in the form of its
schema). Tokens are words.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Any, Final, Self

import orjson

from tests.support.servers.llm_answers import extractive, out_of_range, with_extra_key
from tests.support.servers.llm_dialects import (
    ChatCompletions,
    GivenAnswer,
    Messages,
    ModelDialect,
    RefusalError,
    SeenRequest,
    Transcriptions,
)
from tests.support.servers.raw_http import HttpReply, HttpRequest, HttpServer, StreamedReply

MODEL: Final = "model-a"
_PAGE: Final = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body></body></html>"
REFUSAL: Final = "I can't help with that."


class Lie(StrEnum):
    INVALID_JSON = "invalid_json"
    """The text is no JSON."""
    EXTRA_KEY = "extra_key"
    OUT_OF_RANGE = "out_of_range"
    LENGTH = "length"
    """The text is cut at the limit of tokens."""
    REFUSAL = "refusal"
    TRUNCATED = "truncated"
    """The response ends in its middle, as if it were complete."""
    HUNG_UP = "hung_up"
    """The connection closes: without a response, or in the middle of a stream."""
    ERROR_IN_STREAM = "error_in_stream"
    """After the first pieces; without a stream, an error with status 200."""
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    SERVER_ERROR = "server_error"
    SLOW = "slow"
    """Never answers."""
    WRONG_CONTENT_TYPE = "wrong_content_type"
    UNREADABLE_REQUEST = "unreadable_request"
    """400, as for a damaged PDF."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A lie with its ``Retry-After``."""

    lie: Lie
    retry_after: str | None = None


Write = Callable[[SeenRequest], str]
Reply = str | GivenAnswer | Lie | Fault | Write


def by_schema(seen: SeenRequest) -> str:
    return extractive(seen.schema, seen.text)


@dataclass(slots=True)
class LanguageModelServer:
    """Serves on 127.0.0.1. ``key``, if given, is the one that it accepts."""

    key: str | None = None
    answer: Write = by_schema
    script: list[Reply] = field(default_factory=list)
    """The next answers, one each."""
    rules: list[tuple[str, Reply]] = field(default_factory=list)
    """Words of a prompt, and its answer every time."""
    chat: ChatCompletions = field(default_factory=ChatCompletions)
    speech: Transcriptions = field(default_factory=Transcriptions)
    usage: Callable[[SeenRequest, str], tuple[int, int]] | None = None
    """Input and output tokens of an answer."""
    delay: float = 0.0
    """Seconds before each answer."""
    gate: asyncio.Event | None = None
    """While it is not set, no request is answered."""
    seen: list[SeenRequest] = field(default_factory=list)
    """All requests that the original would accept, in their order."""
    stall_after: int | None = None
    """Pieces of a stream before nothing follows."""
    refused: int = 0
    """Requests that the original would not accept."""
    peak: int = 0
    _at_once: int = 0
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _http: HttpServer = field(init=False)

    def __post_init__(self) -> None:
        self._http = HttpServer(self._serve)

    async def __aenter__(self) -> Self:
        await self._http.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.close()

    @property
    def base_url(self) -> str:
        return self._http.address

    async def received(self, requests: int) -> None:
        """Wait for so many requests in all."""
        while len(self.seen) < requests:
            self._arrived.clear()
            await self._arrived.wait()

    async def _serve(self, request: HttpRequest) -> HttpReply | StreamedReply | None:
        dialects: tuple[ModelDialect, ...] = (self.chat, Messages(), self.speech)
        dialect = next((one for one in dialects if request.path in one.paths), None)
        if dialect is None or request.method != "POST":
            return HttpReply(404, b'{"detail": "Not Found"}')
        given = request.headers.get("x-api-key") or request.headers.get("authorization", "")
        if self.key is not None and given.removeprefix("Bearer ") != self.key:
            return dialect.refuse(401, f"Incorrect API key provided: {given}")
        try:
            seen = dialect.read(request)
            self.seen.append(seen)
            self._arrived.set()
            self._at_once += 1
            self.peak = max(self.peak, self._at_once)
            try:
                return await self._answered(dialect, seen)
            finally:
                self._at_once -= 1
        except RefusalError as refusal:
            self.refused += 1
            return dialect.refuse(refusal.status, refusal.message)

    async def _answered(
        self, dialect: ModelDialect, seen: SeenRequest
    ) -> HttpReply | StreamedReply | None:
        if self.gate is not None:
            await self.gate.wait()
        if self.delay:
            await asyncio.sleep(self.delay)
        reply = self._next(seen)
        fault = Fault(reply) if isinstance(reply, Lie) else reply
        if isinstance(fault, Fault):
            if (failed := await self._failed(dialect, seen, fault)) is not _ANSWERED:
                return failed
            return self._lied(dialect, seen, fault.lie)
        given = fault(seen) if callable(fault) else fault
        answer = given if isinstance(given, GivenAnswer) else self._counted(seen, given)
        if seen.streamed:
            return StreamedReply(dialect.events(seen, answer), pause=self._stall())
        return HttpReply(200, orjson.dumps(dialect.document(seen, answer)))

    def _stall(self) -> Callable[[], Awaitable[None]] | None:
        if self.stall_after is None:
            return None
        sent = itertools.count()
        limit = self.stall_after

        async def pause() -> None:
            if next(sent) >= limit:
                await asyncio.Event().wait()

        return pause

    def _next(self, seen: SeenRequest) -> Reply:
        if self.script:
            return self.script.pop(0)
        return next((reply for words, reply in self.rules if words in seen.text), self.answer)

    def _counted(self, seen: SeenRequest, text: str, stop: str = "end") -> GivenAnswer:
        read, written = len(f"{seen.system} {seen.text}".split()), len(text.split())
        if self.usage is not None:
            read, written = self.usage(seen, text)
        return GivenAnswer(text, stop, read, written)

    async def _failed(
        self, dialect: ModelDialect, seen: SeenRequest, fault: Fault
    ) -> HttpReply | StreamedReply | None:
        """The response in place of an answer; ``_ANSWERED`` for a lie that is an answer. None hangs up."""
        headers = {} if fault.retry_after is None else {"Retry-After": fault.retry_after}
        match fault.lie:
            case Lie.RATE_LIMITED:
                return dialect.refuse(429, f"Rate limit reached for {self.key}", headers)
            case Lie.OVERLOADED:
                status = 529 if seen.path in Messages.paths else 503
                return dialect.refuse(status, "Overloaded", headers)
            case Lie.SERVER_ERROR:
                return dialect.refuse(500, f"internal error; called with {self.key}", headers)
            case Lie.UNREADABLE_REQUEST:
                return dialect.refuse(400, "The PDF specified was not valid.")
            case Lie.WRONG_CONTENT_TYPE:
                return HttpReply(200, _PAGE, media_type="text/html")
            case Lie.SLOW:
                await asyncio.Event().wait()
            case Lie.HUNG_UP if not seen.streamed:
                return None
            case Lie.ERROR_IN_STREAM if not seen.streamed:
                return HttpReply(200, orjson.dumps({"error": _ERROR}))
        return _ANSWERED

    def _lied(
        self, dialect: ModelDialect, seen: SeenRequest, lie: Lie
    ) -> HttpReply | StreamedReply:
        text = self.answer(seen)
        match lie:
            case Lie.INVALID_JSON:
                answer = self._counted(seen, f"Here is the JSON: {text[:-1]}")
            case Lie.EXTRA_KEY:
                answer = self._counted(seen, with_extra_key(text))
            case Lie.OUT_OF_RANGE:
                answer = self._counted(seen, out_of_range(text))
            case Lie.LENGTH:
                answer = self._counted(seen, text[: len(text) // 2], "length")
            case Lie.REFUSAL:
                answer = self._counted(seen, REFUSAL, "refusal")
            case _:
                answer = self._counted(seen, text)
        if not seen.streamed:
            sent = orjson.dumps(dialect.document(seen, answer))
            return HttpReply(200, sent[: len(sent) // 2] if lie is Lie.TRUNCATED else sent)
        events = dialect.events(seen, answer)
        if lie in (Lie.TRUNCATED, Lie.HUNG_UP):
            return StreamedReply(events[: len(events) // 2], cut=lie is Lie.HUNG_UP)
        if lie is Lie.ERROR_IN_STREAM:
            error = b"event: error\ndata: " + orjson.dumps({"type": "error", "error": _ERROR})
            return StreamedReply([*events[: len(events) // 2], error + b"\n\n"])
        return StreamedReply(events)


_ERROR: Final[Mapping[str, Any]] = {"type": "overloaded_error", "message": "Overloaded"}
_ANSWERED: Final = HttpReply(200, b"")
