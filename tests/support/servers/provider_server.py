"""A stand-in for the embedding API of each kind of provider, that takes and answers what the original does.

``async with ProviderServer(Kind.OLLAMA, dims=64) as server: … server.base_url``. Unknown and missing fields are refused,
so is a wrong key. A text's tokens are its words. A text over ``window`` words is refused as the original does, or cut
without a word when ``truncates``. ``facts`` is the window that the server reports, if its kind does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

import orjson

from latent_core.domain.vector_types import Matrix
from latent_core.models.providers.entry import Kind
from tests.support.hashed_embedder import HashedWords
from tests.support.servers.raw_http import (
    HttpReply,
    HttpRequest,
    HttpServer,
)

MODEL: Final = "model-a"
_FACTS: Final = frozenset({"/api/show", "/v1/models", "/info"})
_PAGE: Final = (
    b"<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
)


class RefusalError(Exception):
    """A request that the original refuses."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(str(body))
        self.reply = HttpReply(status, orjson.dumps(body))


@dataclass(frozen=True, slots=True)
class TextsRequest:
    """What a request asks for."""

    texts: list[str]
    model: str | None
    dims: int | None = None
    input_type: str | None = None
    truncate: bool | None = None
    """Whether the request itself decides about texts that are too long."""


@dataclass(frozen=True, slots=True)
class Original:
    """How the API of one kind is served."""

    paths: tuple[str, ...]
    read: Callable[[Mapping[str, Any], str], TextsRequest]
    answer: Callable[[Sequence[Sequence[float]], int], Any]
    too_long: Callable[[int, int], RefusalError]
    """From the words of the text and the window."""
    max_texts: int
    key_header: str = "authorization"
    cuts_by_default: bool = False


def _fields(body: Mapping[str, Any], needed: set[str], known: set[str]) -> None:
    if missing := needed - set(body):
        raise RefusalError(422, {"detail": f"field required: {sorted(missing)}"})
    if strange := set(body) - needed - known:
        raise RefusalError(400, {"error": f"unknown fields {sorted(strange)}"})


def _openai(body: Mapping[str, Any], _: str) -> TextsRequest:
    _fields(body, {"model", "input"}, {"dimensions", "encoding_format", "user"})
    return TextsRequest(body["input"], body["model"], body.get("dimensions"))


def _ollama(body: Mapping[str, Any], _: str) -> TextsRequest:
    _fields(body, {"model", "input"}, {"truncate", "options", "keep_alive", "dimensions"})
    return TextsRequest(
        body["input"], body["model"], body.get("dimensions"), truncate=body.get("truncate", True)
    )


def _nomic(body: Mapping[str, Any], _: str) -> TextsRequest:
    _fields(
        body,
        {"model", "texts"},
        {"task_type", "dimensionality", "long_text_mode", "max_tokens_per_text"},
    )
    cuts = body.get("long_text_mode", "mean") == "truncate"  # else the mean of its parts
    dims, task = body.get("dimensionality"), body.get("task_type", "search_document")
    return TextsRequest(body["texts"], body["model"], dims, task, cuts)


def _jina(body: Mapping[str, Any], _: str) -> TextsRequest:
    _fields(
        body,
        {"model", "input"},
        {"task", "dimensions", "truncate", "late_chunking", "embedding_type"},
    )
    texts = [item["text"] if isinstance(item, dict) else item for item in body["input"]]
    task = body.get("task")
    if task is not None and "v2" in body["model"]:
        raise RefusalError(422, {"detail": "this model has no tasks"})
    return TextsRequest(
        texts, body["model"], body.get("dimensions"), task, body.get("truncate", False)
    )


def _voyage(body: Mapping[str, Any], _: str) -> TextsRequest:
    _fields(
        body,
        {"model", "input"},
        {"input_type", "truncation", "output_dimension", "output_dtype", "encoding_format"},
    )
    kind, cuts = body.get("input_type"), body.get("truncation", True)
    if kind not in (None, "query", "document"):
        raise RefusalError(400, {"detail": f"input_type {kind} is not valid"})
    return TextsRequest(body["input"], body["model"], body.get("output_dimension"), kind, cuts)


def _cohere(body: Mapping[str, Any], _: str) -> TextsRequest:
    _fields(
        body,
        {"model", "input_type", "texts"},
        {"embedding_types", "truncate", "output_dimension", "max_tokens"},
    )
    if body.get("embedding_types", ["float"]) != ["float"]:
        raise RefusalError(400, {"message": "these embedding types are not served here"})
    cuts = body.get("truncate", "END") != "NONE"
    dims = body.get("output_dimension")
    return TextsRequest(body["texts"], body["model"], dims, body["input_type"], cuts)


def _tei(body: Mapping[str, Any], _: str) -> TextsRequest:
    _fields(
        body,
        {"inputs"},
        {"truncate", "truncation_direction", "prompt_name", "normalize", "dimensions"},
    )
    return TextsRequest(body["inputs"], None, body.get("dimensions"), truncate=body.get("truncate"))


def _gemini(body: Mapping[str, Any], path: str) -> TextsRequest:
    _fields(body, {"requests"}, set())
    model = path.removeprefix("/v1beta/models/").removesuffix(":batchEmbedContents")
    texts, tasks, dims = [], set(), set()
    for request in body["requests"]:
        _fields(request, {"model", "content"}, {"taskType", "title", "outputDimensionality"})
        if request["model"] != f"models/{model}":
            raise RefusalError(400, {"error": {"message": "models differ", "code": 400}})
        (part,) = request["content"]["parts"]
        texts.append(part["text"])
        tasks.add(request.get("taskType"))
        dims.add(request.get("outputDimensionality"))
    (task,), (width,) = tasks, dims
    return TextsRequest(texts, model, width, task, truncate=True)


def _data(rows: Sequence[Sequence[float]], tokens: int) -> Any:
    data = [{"object": "embedding", "index": n, "embedding": row} for n, row in enumerate(rows)]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": MODEL, "usage": usage}


def _plain(key: str) -> Callable[[Sequence[Sequence[float]], int], Any]:
    def answer(rows: Sequence[Sequence[float]], tokens: int) -> Any:
        return {key: rows, "model": MODEL, "usage": {"total_tokens": tokens}}

    return answer


def _of_ollama(rows: Sequence[Sequence[float]], tokens: int) -> Any:
    return {"model": MODEL, "embeddings": rows, "total_duration": 1, "prompt_eval_count": tokens}


def _of_cohere(rows: Sequence[Sequence[float]], tokens: int) -> Any:
    meta = {"api_version": {"version": "2"}, "billed_units": {"input_tokens": tokens}}
    return {"id": "5807ee2e", "embeddings": {"float": rows}, "meta": meta}


def _openai_long(words: int, window: int) -> RefusalError:
    message = f"This model's maximum context length is {window} tokens, however you requested {words} tokens"
    return RefusalError(400, {"error": {"message": message, "type": "invalid_request_error"}})


ORIGINALS: Final[Mapping[Kind, Original]] = {
    Kind.OPENAI: Original(("/v1/embeddings",), _openai, _data, _openai_long, 2048),
    Kind.VLLM: Original(("/v1/embeddings", "/embeddings"), _openai, _data, _openai_long, 2048),
    Kind.OLLAMA: Original(
        ("/api/embed",),
        _ollama,
        _of_ollama,
        lambda *_: RefusalError(400, {"error": "the input length exceeds the context length"}),
        10_000,
    ),
    Kind.NOMIC: Original(("/v1/embedding/text",), _nomic, _plain("embeddings"), _openai_long, 400),
    Kind.JINA: Original(
        ("/v1/embeddings",),
        _jina,
        _data,
        lambda *_: RefusalError(
            400, {"detail": "Input text exceeds maximum length of 8194 tokens"}
        ),
        512,
    ),
    Kind.VOYAGE: Original(
        ("/v1/embeddings",),
        _voyage,
        _data,
        lambda *_: RefusalError(400, {"detail": "The example at index 0 has too many tokens"}),
        128,
    ),
    Kind.COHERE: Original(
        ("/v2/embed",),
        _cohere,
        _of_cohere,
        lambda words, window: RefusalError(
            400, {"message": f"too many tokens: texts[0] has {words}, the maximum is {window}"}
        ),
        96,
    ),
    Kind.TEI: Original(
        ("/embed",),
        _tei,
        lambda rows, _: rows,
        lambda words, window: RefusalError(
            413,
            {
                "error": f"Input validation error: `inputs` must have less than {window} tokens. Given: {words}",
                "error_type": "Validation",
            },
        ),
        32,
    ),
    Kind.GEMINI: Original(
        (f"/v1beta/models/{MODEL}:batchEmbedContents",),
        _gemini,
        lambda rows, _: {"embeddings": [{"values": row} for row in rows]},
        _openai_long,
        100,
        key_header="x-goog-api-key",
    ),
}


@dataclass(slots=True)
class ProviderServer:
    """Serves on 127.0.0.1."""

    kind: Kind
    dims: int = 64
    key: str | None = None
    window: int = 100_000
    truncates: bool = False
    """Whether long texts are cut although the request asks for a refusal."""
    facts: int | None = None
    facts_fail: bool = False
    """Whether the requests for it are answered with an error of the server."""
    refused_word: str = "forbidden-word"
    """A text with it is refused for its content."""
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    requests: list[TextsRequest] = field(default_factory=list)
    spoil: list[Callable[[Any], HttpReply | Any]] = field(default_factory=list)
    """The next answers pass through these, one each."""
    headers: dict[str, str] = field(default_factory=dict)
    """Of all good answers."""
    never_answers: bool = False
    other_model: bool = False
    """Whether its model has been replaced by another one of the same name."""
    _http: HttpServer = field(init=False)
    _words: dict[int, HashedWords] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._http = HttpServer(self._answer)

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

    def vectors(self, texts: Sequence[str], dims: int | None = None) -> Matrix:
        """What the server answers for ``texts``."""
        width = dims or self.dims
        if width not in self._words:
            self._words[width] = HashedWords(width)
        rows = self._words[width].vectors(texts)
        return rows[:, ::-1] if self.other_model else rows

    async def _answer(self, request: HttpRequest) -> HttpReply:
        if self.never_answers:
            await asyncio.Event().wait()
        original = ORIGINALS[self.kind]
        given = request.headers.get(original.key_header, "").removeprefix("Bearer ")
        if self.key is not None and given != self.key:
            body = {"error": {"message": f"Incorrect API key provided: {given}"}}
            return HttpReply(401, orjson.dumps(body))
        try:
            if self.facts_fail and request.path in _FACTS:
                raise RefusalError(500, {"error": "the model is being loaded"})
            if (facts := self._facts(request)) is not None:
                return HttpReply(200, orjson.dumps(facts))
            if request.method != "POST" or request.path not in original.paths:
                raise RefusalError(404, {"detail": "Not Found"})
            return self._embedded(original, request)
        except RefusalError as refusal:
            return refusal.reply

    def _embedded(self, original: Original, request: HttpRequest) -> HttpReply:
        body = orjson.loads(request.body)
        self.calls.append((request.path, body))
        texts_request = original.read(body, request.path)
        self.requests.append(texts_request)
        texts = self._fitting(original, texts_request)
        dims = self.dims if texts_request.dims is None else texts_request.dims
        if dims > self.dims:
            raise RefusalError(400, {"error": {"message": f"dimensions must be <= {self.dims}"}})
        rows = self.vectors(texts)[:, :dims].tolist()
        answer = original.answer(rows, sum(len(text.split()) for text in texts))
        if self.spoil:
            answer = self.spoil.pop(0)(answer)
        if isinstance(answer, HttpReply):
            return answer
        return HttpReply(200, orjson.dumps(answer), self.headers)

    def _fitting(self, original: Original, request: TextsRequest) -> list[str]:
        texts = request.texts
        if not texts or not all(isinstance(text, str) for text in texts):
            raise RefusalError(422, {"detail": "a list of texts is required"})
        if len(texts) > original.max_texts:
            raise RefusalError(413, {"error": f"batch size {len(texts)} > {original.max_texts}"})
        if any(self.refused_word in text for text in texts):
            raise RefusalError(400, {"error": {"message": "this input cannot be embedded"}})
        cuts = self.truncates or request.truncate is True
        longest = max(len(text.split()) for text in texts)
        if longest > self.window and not cuts:
            raise original.too_long(longest, self.window)
        return [" ".join(text.split()[: self.window]) for text in texts]

    def _facts(self, request: HttpRequest) -> Any:
        """What the original reports about its model; None for another request."""
        match self.kind, request.method, request.path:
            case Kind.OLLAMA, "POST", "/api/show" if self.facts is not None:
                if orjson.loads(request.body)["model"] != MODEL:
                    raise RefusalError(404, {"error": "model not found"})
                architecture = {"nomic-bert.context_length": self.facts}
                info = {"general.architecture": "nomic-bert", **architecture}
                return {"model_info": info, "parameters": 'stop "x"', "details": {}}
            case ((Kind.VLLM | Kind.OPENAI), "GET", "/v1/models") if self.facts is not None:
                model = {"id": MODEL, "object": "model", "max_model_len": self.facts}
                return {"object": "list", "data": [model]}
            case Kind.TEI, "GET", "/info" if self.facts is not None:
                return {
                    "model_id": MODEL,
                    "max_input_length": self.facts,
                    "max_client_batch_size": 8,
                    "auto_truncate": False,
                }
        return None


def html_page(_: Any) -> HttpReply:
    """What a proxy in front of a server sends."""
    return HttpReply(200, _PAGE, media_type="text/html")


def failed_page(_: Any) -> HttpReply:
    return HttpReply(500, _PAGE, media_type="text/html")


def rate_limited(**headers: str) -> Callable[[Any], HttpReply]:
    """429 with these headers, such as ``retry_after="2"``."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _: HttpReply(429, b'{"error": {"message": "Rate limit reached"}}', named)
