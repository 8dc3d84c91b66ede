"""Embeddings of texts in each dialect: what a request looks like, and where its vectors are in the response.

Input types (document or query) are set where the API has them. Where the API can refuse an input that is too
long instead of cutting it, requests ask for that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from latent_core.domain.errors import IngestFailed, InputRefused
from latent_core.models.embedding.api.wire import (
    EmbeddingEndpoint,
    EmbeddingResponse,
    EmbeddingWire,
    answered,
    listed,
)
from latent_core.models.providers.entry import Kind

OPENAI: Final = "the openai dialect"
Body = Callable[[str, Sequence[str], bool], dict[str, Any]]
"""Makes a request for texts from the model's name; the last argument is true for a query."""
Vectors = Callable[[EmbeddingWire, Any, int], list[Any]]
"""The vectors of a response, in the order of the texts."""


@dataclass(frozen=True, slots=True)
class TextShape:
    """Requests for texts in one dialect."""

    path: str
    body: Body
    vectors: Vectors
    dims_key: str
    """The key of a request for fewer dimensions than the model has."""
    max_texts: int = 64
    """Per request."""
    own_api: bool = True
    """Whether ``path`` has the API's version; else it is in the style of OpenAI."""
    model_in_path: bool = False


def by_index(wire: EmbeddingWire, answer: Any, count: int) -> list[Any]:
    """Vectors of objects in the list ``data``, in the order of their indices."""
    items = listed(wire, _under(answer, "data"), count, OPENAI, "data")
    if not all(isinstance(item, dict) for item in items):
        raise IngestFailed(
            f"{wire.name} does not speak {OPENAI}: its response has no list 'data' of objects"
        )
    order = [item.get("index", place) for place, item in enumerate(items)]
    whole = all(isinstance(index, int) for index in order)
    if not whole or sorted(order) != list(range(count)):
        raise IngestFailed(f"{wire.name} returned indices that are not 0 to {count - 1}, each once")
    placed = dict(zip(order, items, strict=True))
    return [placed[index].get("embedding") for index in range(count)]


def plain(dialect: str, *path: str) -> Vectors:
    """Vectors in the list under the keys ``path``; the response itself if there are none."""

    def vectors(wire: EmbeddingWire, answer: Any, count: int) -> list[Any]:
        return listed(wire, _under(answer, *path), count, dialect, ".".join(path) or "of vectors")

    return vectors


def _gemini_vectors(wire: EmbeddingWire, answer: Any, count: int) -> list[Any]:
    items = listed(wire, _under(answer, "embeddings"), count, "Gemini's dialect", "embeddings")
    return [_under(item, "values") for item in items]


def _under(answer: Any, *path: str) -> Any:
    for key in path:
        answer = answer.get(key) if isinstance(answer, dict) else None
    return answer


def _openai(model: str, texts: Sequence[str], _: bool) -> dict[str, Any]:
    return {"model": model, "input": list(texts)}


def _ollama(model: str, texts: Sequence[str], _: bool) -> dict[str, Any]:
    return {"model": model, "input": list(texts), "truncate": False}


def _nomic(model: str, texts: Sequence[str], query: bool) -> dict[str, Any]:
    return {
        "texts": list(texts),
        "model": model,
        "task_type": "search_query" if query else "search_document",
        # Chunks are cut to fit the window; the mean of a longer text's parts would be a poor vector.
        "long_text_mode": "truncate",
    }


def _jina(model: str, texts: Sequence[str], query: bool) -> dict[str, Any]:
    task = _jina_task(model)
    body: dict[str, Any] = {"model": model, "input": [{"text": text} for text in texts]}
    return body if task is None else {**body, "task": f"{task}.{'query' if query else 'passage'}"}


_JINA_TASKS: Final = (
    (re.compile(r"jina-embeddings-v[3-9]"), "retrieval"),
    (re.compile(r"jina-code-embeddings"), "nl2code"),
)


def _jina_task(model: str) -> str | None:
    """The task of the models that know some; others refuse it."""
    return next((task for pattern, task in _JINA_TASKS if pattern.match(model)), None)


def _voyage(model: str, texts: Sequence[str], query: bool) -> dict[str, Any]:
    return {
        "model": model,
        "input": list(texts),
        "input_type": "query" if query else "document",
        "truncation": False,
    }


def _cohere(model: str, texts: Sequence[str], query: bool) -> dict[str, Any]:
    return {
        "model": model,
        "texts": list(texts),
        "input_type": "search_query" if query else "search_document",
        "embedding_types": ["float"],
        "truncate": "NONE",
    }


def _tei(_: str, texts: Sequence[str], __: bool) -> dict[str, Any]:
    return {"inputs": list(texts), "truncate": False, "normalize": True}


def _gemini(model: str, texts: Sequence[str], query: bool) -> dict[str, Any]:
    name = f"models/{model.removeprefix('models/')}"
    if "gemini-embedding-001" in model or "text-embedding" in model:
        task = {"taskType": "RETRIEVAL_QUERY" if query else "RETRIEVAL_DOCUMENT"}
        prompt = ""
    else:  # later models read the task from the text
        task, prompt = {}, "task: search result | query: " if query else "title: none | text: "
    return {
        "requests": [
            {"model": name, "content": {"parts": [{"text": prompt + text}]}, **task}
            for text in texts
        ]
    }


SHAPES: Final[Mapping[Kind, TextShape]] = {
    Kind.OPENAI: TextShape("/embeddings", _openai, by_index, "dimensions", own_api=False),
    Kind.VLLM: TextShape("/embeddings", _openai, by_index, "dimensions", own_api=False),
    Kind.OLLAMA: TextShape(
        "/api/embed", _ollama, plain("Ollama's dialect", "embeddings"), "dimensions"
    ),
    Kind.NOMIC: TextShape(
        "/v1/embedding/text", _nomic, plain("Nomic's dialect", "embeddings"), "dimensionality"
    ),
    Kind.JINA: TextShape("/embeddings", _jina, by_index, "dimensions", own_api=False),
    Kind.VOYAGE: TextShape("/embeddings", _voyage, by_index, "output_dimension", own_api=False),
    Kind.COHERE: TextShape(
        "/v2/embed", _cohere, plain("Cohere's dialect", "embeddings", "float"), "output_dimension"
    ),
    # The default of its --max-client-batch-size is 32.
    Kind.TEI: TextShape("/embed", _tei, plain("TEI's dialect"), "dimensions", max_texts=32),
    Kind.GEMINI: TextShape(
        "/v1beta/models/{model}:batchEmbedContents",
        _gemini,
        _gemini_vectors,
        "outputDimensionality",
        model_in_path=True,
    ),
}


class TextClient:
    """Texts in the dialect of one kind of provider."""

    def __init__(
        self,
        kind: Kind,
        endpoint: EmbeddingEndpoint,
        *,
        connections: int,
        options: Mapping[str, Any] | None = None,
        task: bool = True,
    ) -> None:
        """``options``: of the model, for Ollama. ``task``: whether requests to Jina's models name the task, which
        version 1 of this client did not."""
        self._shape = shape = SHAPES[kind]
        self._task = task
        self._options = dict(options or {})
        self.max_texts = shape.max_texts
        model = endpoint.model.removeprefix("models/")
        path = shape.path.format(model=quote(model, safe="")) if shape.model_in_path else shape.path
        self.wire = EmbeddingWire(endpoint, path, connections=connections, own_api=shape.own_api)
        self._asks_dims = kind is Kind.NOMIC and endpoint.dims is not None
        """Whether requests name the dimensions. Others name them once an answer has had more: many models know only
        one number and refuse the key."""

    @property
    def name(self) -> str:
        return self.wire.name

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> EmbeddingResponse:
        answer, vectors = await self._ask(texts, query)
        if not self._asks_dims and self._has_more_dims(vectors):
            self._asks_dims = True
            try:
                answer, vectors = await self._ask(texts, query)
            except (IngestFailed, InputRefused):
                self._asks_dims = False  # the rows that came say which number the model knows
        return answered(self.wire, answer, vectors)

    async def _ask(self, texts: Sequence[str], query: bool) -> tuple[Any, list[Any]]:
        body = self._shape.body(self.wire.endpoint.model, texts, query)
        if self._options:
            body["options"] = self._options
        if not self._task:
            body.pop("task", None)
        dims = self.wire.endpoint.dims
        if self._asks_dims and dims is not None:
            for request in body.get("requests", [body]):
                request[self._shape.dims_key] = dims
        answer = await self.wire.ask(body, len(texts))
        return answer, self._shape.vectors(self.wire, answer, len(texts))

    def _has_more_dims(self, vectors: list[Any]) -> bool:
        first, dims = vectors[0] if vectors else None, self.wire.endpoint.dims
        return dims is not None and isinstance(first, list) and len(first) > dims

    async def close(self) -> None:
        await self.wire.close()
