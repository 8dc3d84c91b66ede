"""A deterministic embedder over real HTTP, in every dialect of ours, that can be told to misbehave.

A picture has the vector of what ``see`` says of it. Its refusals show the key it was called with, as some
servers' do.

In the process: ``async with EmbeddingServer(dims=384) as server: … server.base_url``.
As a process: ``python -m tests.support.servers.embedding_server --dims 384`` prints one line of JSON with
``base_url``, and serves until its standard input closes. ``POST /misbehave`` and ``GET /stats`` steer it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import orjson

from latent_core.domain.vector_types import Matrix
from latent_core.runtime.lifeline import watch_parent
from tests.support.hashed_embedder import HashedWords
from tests.support.servers.image_dialects import See, blind, read_form, read_json
from tests.support.servers.raw_http import (
    HttpReply,
    HttpRequest,
    HttpServer,
)

_DEFAULT_DIMS: Final = 384


class EmbeddingFault(StrEnum):
    RATE_LIMITED = "rate_limited"
    SERVER_ERROR = "server_error"
    OVERLOADED = "overloaded"
    """503, and when to come back."""
    REFUSED = "refused"
    REDIRECT = "redirect"
    NO_MODEL = "no_model"
    SILENT = "silent"
    """Reads the request and never answers."""
    HUNG_UP = "hung_up"
    """Closes the connection without an answer."""
    WRONG_DIMS = "wrong_dims"
    TRUNCATED = "truncated"
    REORDERED = "reordered"
    NOT_A_NUMBER = "not_a_number"
    ZERO = "zero"
    MISSING = "missing"
    HUGE = "huge"


_NOT_JSON: Final = frozenset({EmbeddingFault.TRUNCATED, EmbeddingFault.HUGE})


@dataclass(frozen=True, slots=True)
class EmbeddingFaultPlan:
    """What the next ``times`` requests get instead of a good answer."""

    kind: EmbeddingFault
    times: int = 1
    retry_after: str = "1"
    only_with: str = ""
    """Only requests with a text that contains this are treated so."""


@dataclass(slots=True)
class EmbeddingServerStats:
    requests: int = 0
    texts: int = 0
    """Embedded well …"""
    images: int = 0
    """… and of these, pictures."""
    largest: int = 0
    """Texts of the largest request."""


class EmbeddingServer:
    """Serves on 127.0.0.1. ``key``, if given, is the bearer key it wants; ``delay`` the seconds it thinks."""

    def __init__(
        self,
        *,
        dims: int = _DEFAULT_DIMS,
        key: str | None = None,
        delay: float = 0.0,
        see: See = blind,
    ) -> None:
        self.dims = dims
        self.key = key
        self.delay = delay
        self._see = see
        self.stats = EmbeddingServerStats()
        self.tasks: list[str] = []
        """Task types that Nomic's dialect was asked for."""
        self.gone: set[str] = set()
        """Models that are not served any more."""
        self._models: dict[int, HashedWords] = {}
        self._plan: EmbeddingFaultPlan | None = None
        self._http = HttpServer(self._answer)

    async def start(self, port: int = 0) -> None:
        await self._http.start(port)

    @property
    def base_url(self) -> str:
        """``?dims=`` after it chooses another width, as does a model's name (``test@48``)."""
        return f"{self._http.address}/v1"

    @property
    def root_url(self) -> str:
        """The base of Nomic's dialect."""
        return self.base_url.removesuffix("/v1")

    def misbehave(
        self, kind: EmbeddingFault, *, times: int = 1, retry_after: str = "1", only_with: str = ""
    ) -> None:
        self._plan = EmbeddingFaultPlan(kind, times, retry_after, only_with)

    def vectors(self, texts: Sequence[str], dims: int | None = None) -> Matrix:
        """What the server answers for ``texts``."""
        width = dims or self.dims
        if width not in self._models:
            self._models[width] = HashedWords(width)
        return self._models[width].vectors(texts)

    async def close(self) -> None:
        await self._http.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _answer(self, request: HttpRequest) -> HttpReply | None:
        """None hangs up."""
        if (request.method, request.path) == ("GET", "/stats"):
            return HttpReply(200, orjson.dumps(asdict(self.stats)))
        if (request.method, request.path) == ("POST", "/misbehave"):
            plan = orjson.loads(request.body)
            self.misbehave(EmbeddingFault(plan.pop("kind")), **plan)
            return HttpReply(200, b"{}")
        embed = {
            "/v1/embedding/text": self._embed_as_nomic,
            "/v1/embedding/image": self._embed_images_as_nomic,
        }.get(request.path, self._embed)
        known = embed != self._embed or request.path.endswith("/embeddings")
        if request.method != "POST" or not known:
            return _error(404, "no such route")
        given = request.headers.get("authorization", "")
        if self.key is not None and given != f"Bearer {self.key}":
            return _error(401, f"Incorrect API key provided: {given.removeprefix('Bearer ')}.")
        await asyncio.sleep(self.delay)
        try:
            return await embed(request)
        except (ValueError, KeyError, TypeError) as exc:  # not what the dialect asks for
            return _error(400, str(exc))

    async def _embed(self, request: HttpRequest) -> HttpReply | None:
        payload = orjson.loads(request.body)
        if payload["model"] in self.gone:
            return _error(404, "The model does not exist")
        texts, images = read_json(payload, self._see)
        self.stats.requests += 1
        self.stats.largest = max(self.stats.largest, len(texts))
        dims = int(request.query.get("dims", [str(_width(payload["model"], self.dims))])[0])
        if plan := self._next_plan(texts):
            return await self._misbehave(plan, texts, dims)
        self.stats.texts += len(texts)
        self.stats.images += images
        return _good(self.vectors(texts, dims), range(len(texts)), payload["model"], _tokens(texts))

    async def _embed_as_nomic(self, request: HttpRequest) -> HttpReply | None:
        payload = orjson.loads(request.body)
        texts, task = payload.get("texts"), payload.get("task_type")
        if not texts or task not in ("search_document", "search_query") or "model" not in payload:
            return _error(400, "'texts', 'model' and a 'task_type' are required")
        self.tasks.append(task)
        return await self._answer_as_nomic(texts, payload.get("dimensionality", self.dims))

    async def _embed_images_as_nomic(self, request: HttpRequest) -> HttpReply | None:
        seen, images = read_form(request.headers.get("content-type", ""), request.body, self._see)
        answer = await self._answer_as_nomic(seen, self.dims)
        self.stats.images += images
        return answer

    async def _answer_as_nomic(self, texts: Sequence[str], dims: int) -> HttpReply | None:
        self.stats.requests += 1
        plan = self._next_plan(texts)
        if plan is None:
            self.stats.texts += len(texts)
            return _good_of_nomic(self.vectors(texts, dims), texts)
        answer = await self._misbehave(plan, texts, dims)
        if answer is None or answer.status != 200 or plan.kind in _NOT_JSON:
            return answer
        # The fault of the one dialect, in the shape of the other; this parser reads and writes NaN.
        rows = [item["embedding"] for item in json.loads(answer.body)["data"]]
        return HttpReply(200, json.dumps({"embeddings": rows, "usage": {}}).encode())

    def _next_plan(self, texts: Sequence[str]) -> EmbeddingFaultPlan | None:
        plan = self._plan
        if plan is None or not any(plan.only_with in text for text in texts):
            return None
        left = EmbeddingFaultPlan(plan.kind, plan.times - 1, plan.retry_after, plan.only_with)
        self._plan = left if left.times else None
        return plan

    async def _misbehave(
        self, plan: EmbeddingFaultPlan, texts: Sequence[str], dims: int
    ) -> HttpReply | None:
        match plan.kind:
            case EmbeddingFault.RATE_LIMITED:
                answer = _error(429, f"Rate limit reached for {self.key}")
                return HttpReply(429, answer.body, {"Retry-After": plan.retry_after})
            case EmbeddingFault.SERVER_ERROR:
                return _error(500, f"The server had an error; called with {self.key}")
            case EmbeddingFault.OVERLOADED:
                answer = _error(503, f"Overloaded; called with {self.key}")
                return HttpReply(503, answer.body, {"Retry-After": plan.retry_after})
            case EmbeddingFault.REFUSED:
                return _error(400, f"This input cannot be embedded; called with {self.key}")
            case EmbeddingFault.NO_MODEL:
                return _error(404, f"The model does not exist for {self.key}")
            case EmbeddingFault.REDIRECT:
                return HttpReply(307, b"", {"Location": f"{self.base_url}/embeddings"})
            case EmbeddingFault.HUNG_UP:
                return None
            case EmbeddingFault.SILENT:
                await asyncio.Event().wait()
        return self._spoiled(plan.kind, self.vectors(texts, dims))

    def _spoiled(self, kind: EmbeddingFault, vectors: Matrix) -> HttpReply:
        """A good answer with one fault."""
        order = range(len(vectors))
        match kind:
            case EmbeddingFault.WRONG_DIMS:
                return _good(vectors[:, :-1], order)
            case EmbeddingFault.REORDERED:
                return _good(vectors, order[::-1])
            case EmbeddingFault.MISSING:
                return _good(vectors, order[:-1])
            case EmbeddingFault.ZERO:
                return _good(np.zeros_like(vectors), order)
            case EmbeddingFault.HUGE:
                return HttpReply(200, b'{"data": [' + b" " * 64 * 1024 * 1024)
            case EmbeddingFault.NOT_A_NUMBER:
                whole = _good(np.full_like(vectors, 0.5), order).body
                return HttpReply(200, whole.replace(b"0.5", b"NaN"))
        return HttpReply(200, _good(vectors, order).body[:-20])


def _tokens(texts: Sequence[str]) -> int:
    return sum(len(text.split()) for text in texts)


def _good_of_nomic(vectors: Matrix, texts: Sequence[str]) -> HttpReply:
    usage = {"prompt_tokens": _tokens(texts), "total_tokens": _tokens(texts)}
    whole = {"embeddings": np.ascontiguousarray(vectors), "usage": usage, "model": "test"}
    return HttpReply(200, orjson.dumps(whole, option=orjson.OPT_SERIALIZE_NUMPY))


def _width(model: str, default: int) -> int:
    """A model named ``anything@48`` is 48 wide: one server, several embedders."""
    width = model.rpartition("@")[2]
    return int(width) if "@" in model and width.isdigit() else default


def _good(vectors: Matrix, order: Sequence[int], model: str = "test", tokens: int = 0) -> HttpReply:
    data = [
        {"object": "embedding", "index": index, "embedding": np.ascontiguousarray(vectors[index])}
        for index in order
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    whole = {"object": "list", "data": data, "model": model, "usage": usage}
    return HttpReply(200, orjson.dumps(whole, option=orjson.OPT_SERIALIZE_NUMPY))


def _error(status: int, message: str) -> HttpReply:
    return HttpReply(status, orjson.dumps({"error": {"message": message, "type": "test"}}))


async def _main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="a deterministic embedder over HTTP")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--dims", type=int, default=_DEFAULT_DIMS)
    parser.add_argument("--key", default=None, help="the bearer key to ask for")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds it thinks")
    given: Any = parser.parse_args(arguments)
    server = EmbeddingServer(dims=given.dims, key=given.key, delay=given.delay)
    await server.start(given.port)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        loop.call_soon_threadsafe(ended.set)

    watch_parent(sys.stdin.fileno(), end)
    sys.stdout.write(orjson.dumps({"base_url": server.base_url}).decode() + "\n")
    sys.stdout.flush()
    await ended.wait()
    await server.close()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1:]))
