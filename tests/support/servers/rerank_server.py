"""A deterministic reranker over real HTTP that speaks every dialect as its original does, and can misbehave.

``async with RerankServer(key="sk") as server: … server.url(Dialect.TEI)``. Scores are the share of the query's
words that a text has. What the original refuses is refused: unknown and missing fields, too many texts. Results come
best first, as there. One request a connection.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Any, Final, Self

import orjson

_MAX_HEADER: Final = 64 * 1024
_HUGE: Final = 8 * 1024 * 1024
_WORD: Final = re.compile(r"\w+")
_CONTRACT: Final = frozenset({"query", "documents", "top_k", "return_documents"})
_SPOILED: Final = 12345.5
"""A score that stands for one that JSON cannot write."""

Results = list[tuple[int, float]]


class RerankFault(StrEnum):
    RATE_LIMITED = "rate_limited"
    SERVER_ERROR = "server_error"
    OVERLOADED = "overloaded"
    """503, and when to come back."""
    REFUSED = "refused"
    REDIRECT = "redirect"
    SILENT = "silent"
    """Reads the request and never answers."""
    HUNG_UP = "hung_up"
    """Closes the connection without an answer."""
    WRONG_COUNT = "wrong_count"
    DUPLICATE = "duplicate"
    """One index twice, another not at all."""
    OUT_OF_RANGE = "out_of_range"
    NOT_A_NUMBER = "not_a_number"
    GARBAGE = "garbage"
    TRUNCATED = "truncated"
    HUGE = "huge"


@dataclass(frozen=True, slots=True)
class RerankFaultPlan:
    """What the next ``times`` requests get instead of a good answer."""

    kind: RerankFault
    times: int
    retry_after: str | None


@dataclass(frozen=True, slots=True)
class RerankCall:
    """A request that came; header names in small letters."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _RerankReply:
    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    def encoded(self) -> bytes:
        lines = [
            f"HTTP/1.1 {self.status} Said",
            "Content-Type: application/json",
            f"Content-Length: {len(self.body)}",
            "Connection: close",
            *(f"{name}: {value}" for name, value in self.headers.items()),
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + self.body


@dataclass(frozen=True, slots=True)
class _Manner:
    """What one original takes, and how it answers."""

    needs: frozenset[str]
    takes: frozenset[str]
    answer: Callable[[Results, dict[str, Any]], Any]
    texts: str = "documents"
    max_texts: int = 1000
    too_many: int = 400


def _as_results(results: Results) -> list[dict[str, Any]]:
    return [{"index": index, "relevance_score": score} for index, score in results]


def _contract(results: Results, _: dict[str, Any]) -> Any:
    return {"results": _as_results(results)}


def _scores(results: Results, _: dict[str, Any]) -> Any:
    return {"scores": [score for _, score in sorted(results)]}


def _cohere(results: Results, _: dict[str, Any]) -> Any:
    meta = {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}}
    return {"id": "07734bd2", "results": _as_results(results), "meta": meta}


def _jina(results: Results, body: dict[str, Any]) -> Any:
    head = {"model": body["model"], "object": "list", "usage": {"total_tokens": 1}}
    return {**head, "results": _as_results(results)}


def _voyage(results: Results, body: dict[str, Any]) -> Any:
    tail = {"model": body["model"], "usage": {"total_tokens": 1}}
    return {"object": "list", "data": _as_results(results), **tail}


def _vllm(results: Results, body: dict[str, Any]) -> Any:
    """It sends the texts back, asked or not."""
    echoed = [
        {"index": index, "document": {"text": body["documents"][index]}, "relevance_score": score}
        for index, score in results
    ]
    head = {"id": "rerank-1", "model": body.get("model", "served"), "usage": {"total_tokens": 1}}
    return {**head, "results": echoed}


def _tei(results: Results, _: dict[str, Any]) -> Any:
    return [{"index": index, "score": score} for index, score in results]


_NAMED: Final = frozenset({"model", "query", "documents"})
_MANNERS: Final[Mapping[str, _Manner]] = {
    "/contract": _Manner(_CONTRACT, frozenset({"model"}), _contract),
    "/scores": _Manner(_CONTRACT, frozenset({"model"}), _scores),
    "/cohere/v2/rerank": _Manner(
        _NAMED, frozenset({"top_n", "max_tokens_per_doc", "priority"}), _cohere
    ),
    "/jina/v1/rerank": _Manner(
        _NAMED, frozenset({"top_n", "return_documents", "truncation"}), _jina
    ),
    "/voyage/v1/rerank": _Manner(
        _NAMED, frozenset({"top_k", "return_documents", "truncation"}), _voyage
    ),
    "/vllm/v1/rerank": _Manner(
        frozenset({"query", "documents"}),
        frozenset({"model", "top_n", "truncate_prompt_tokens"}),
        _vllm,
    ),
    "/tei/rerank": _Manner(
        frozenset({"query", "texts"}),
        frozenset({"raw_scores", "return_text", "truncate", "truncation_direction"}),
        _tei,
        texts="texts",
        max_texts=32,
        too_many=422,
    ),
}
PATHS: Final = tuple(_MANNERS)
"""Where the originals are: ``/<original>/<path it has there>``."""


def overlap(query: str, text: str) -> float:
    """The share of the query's words that are in ``text``, 0..1; of equals, the shorter text is better."""
    query_words = set(_WORD.findall(query.lower()))
    words = _WORD.findall(text.lower())
    share = len(query_words & set(words)) / len(query_words) if query_words else 0.0
    return 0.9 * share + 0.1 / (1 + len(words))


class RerankServer:
    """Serves on 127.0.0.1. ``key``, if given, is the bearer key it wants."""

    def __init__(self, *, key: str | None = None) -> None:
        self.key = key
        self.requests: list[RerankCall] = []
        self._plan: RerankFaultPlan | None = None
        self._fixed_answer: bytes | None = None
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_MAX_HEADER)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def url(self, path: str = "/contract") -> str:
        if self._server is None:
            raise RuntimeError("the server is not open")
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}{path}"

    def misbehave(
        self, kind: RerankFault, *, times: int = 1, retry_after: str | None = None
    ) -> None:
        self._plan = RerankFaultPlan(kind, times, retry_after)

    def say(self, answer: bytes) -> None:
        """Answer every request with this."""
        self._fixed_answer = answer

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
        with (
            suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError),
            closing(writer),
        ):
            request = await _read(reader)
            self.requests.append(request)
            answer = await self._answer(request)
            if answer is not None:
                writer.write(answer.encoded())
                await writer.drain()

    async def _answer(self, request: RerankCall) -> _RerankReply | None:
        """None hangs up."""
        manner = _MANNERS.get(request.path)
        if manner is None:
            return _error(404, f"no route {request.path}")
        if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
            return _error(401, f"invalid api token: {request.headers.get('authorization')}")
        if self._fixed_answer is not None:
            return _RerankReply(200, self._fixed_answer)
        refused = _refused(manner, request.body)
        if refused is not None:
            return refused
        plan = self._next_plan()
        if plan is not None and (trouble := await self._trouble(plan)) is not _GOOD:
            return trouble
        results = _ranked(request.body["query"], request.body[manner.texts])
        if plan is not None:
            results = _spoiled(plan.kind, results)
        body = orjson.dumps(manner.answer(results, request.body))
        if plan is not None and plan.kind is RerankFault.NOT_A_NUMBER:
            body = body.replace(str(_SPOILED).encode(), b"NaN")
        if plan is not None and plan.kind is RerankFault.TRUNCATED:
            body = body[:-3]
        return _RerankReply(200, body)

    def _next_plan(self) -> RerankFaultPlan | None:
        plan = self._plan
        if plan is not None:
            left = plan.times - 1
            self._plan = RerankFaultPlan(plan.kind, left, plan.retry_after) if left else None
        return plan

    async def _trouble(self, plan: RerankFaultPlan) -> _RerankReply | None:
        """The answer in place of scores; ``_GOOD`` when scores are answered, perhaps wrong ones."""
        match plan.kind:
            case RerankFault.RATE_LIMITED | RerankFault.OVERLOADED:
                headers = {} if plan.retry_after is None else {"Retry-After": plan.retry_after}
                status = 429 if plan.kind is RerankFault.RATE_LIMITED else 503
                return _error(status, "no more now", headers)
            case RerankFault.SERVER_ERROR:
                return _error(500, f"internal error; called with {self.key}")
            case RerankFault.REFUSED:
                return _error(422, f"these texts cannot be ranked; called with {self.key}")
            case RerankFault.REDIRECT:
                return _RerankReply(307, b"", {"Location": self.url()})
            case RerankFault.GARBAGE:
                return _RerankReply(200, b"<html>Welcome</html>")
            case RerankFault.HUGE:
                return _RerankReply(200, b'{"results": [' + b" " * _HUGE)
            case RerankFault.HUNG_UP:
                return None
            case RerankFault.SILENT:
                await asyncio.Event().wait()
        return _GOOD


_GOOD: Final = _RerankReply(200, b"")


def _refused(manner: _Manner, body: dict[str, Any]) -> _RerankReply | None:
    """What the original says of a request it does not take."""
    missing = manner.needs - set(body)
    unknown = set(body) - manner.needs - manner.takes
    if missing or unknown:
        return _error(422, f"missing {sorted(missing)}, unknown {sorted(unknown)}")
    texts = body[manner.texts]
    if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        return _error(400, "texts are a list of strings that are not empty")
    if len(texts) > manner.max_texts:
        error_text = f"batch size {len(texts)} > maximum allowed batch size {manner.max_texts}"
        return _error(manner.too_many, error_text)
    count = body.get("top_n", body.get("top_k", len(texts)))
    if not isinstance(count, int) or count < 1:
        return _error(400, "the count is a positive number")
    return None


def _ranked(query: str, texts: Sequence[str]) -> Results:
    scored = [(index, overlap(query, text)) for index, text in enumerate(texts)]
    return sorted(scored, key=lambda pair: (-pair[1], pair[0]))


def _spoiled(kind: RerankFault, results: Results) -> Results:
    """Good results with one fault."""
    (index, score), rest = results[0], results[1:]
    match kind:
        case RerankFault.WRONG_COUNT:
            return rest
        case RerankFault.DUPLICATE:
            return [(index, score), (index, score), *rest[1:]]
        case RerankFault.OUT_OF_RANGE:
            return [(len(results), score), *rest]
        case RerankFault.NOT_A_NUMBER:
            return [(index, _SPOILED), *rest]
    return results


def _error(status: int, message: str, headers: Mapping[str, str] | None = None) -> _RerankReply:
    return _RerankReply(status, orjson.dumps({"message": message}), headers or {})


async def _read(reader: asyncio.StreamReader) -> RerankCall:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return RerankCall(first.split(" ")[1], headers, orjson.loads(body))
