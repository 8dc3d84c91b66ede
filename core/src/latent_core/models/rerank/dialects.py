"""How servers want to be asked: the dialects, where each is served, and the body of a request.

Every server is asked to score all the texts, so that none is missing from its answer, and to cut what is
longer than it reads, where it does so only when told. Servers: Cohere's v2, Jina's, Voyage's, vLLM's (its
Jina-like route), text-embeddings-inference's (TEI), and the one of the original contract.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import httpx
import orjson

from latent_core.domain.errors import Invalid

URL_SETTING: Final = "LLC_RERANK_API_URL"
_VERSIONS: Final = ("/v1", "/v2")
"""An address that ends so is the base of an API, as clients of these servers are given it."""


class Dialect(StrEnum):
    CONTRACT = "contract"
    COHERE = "cohere"
    JINA = "jina"
    VOYAGE = "voyage"
    VLLM = "vllm"
    TEI = "tei"


class ModelField(StrEnum):
    """Whether a request names the model."""

    ALWAYS = "always"
    WHEN_GIVEN = "when_given"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class RequestShape:
    """A request of one dialect."""

    path: str
    """Where it is served, when the address names the host alone."""
    model: ModelField
    texts: str = "documents"
    count: str | None = "top_n"
    also: Mapping[str, Any] = field(default_factory=dict)
    max_texts: int = 1000
    """Texts a request."""

    def body(self, query: str, texts: Sequence[str], model: str | None) -> bytes:
        whole: dict[str, Any] = {"query": query, self.texts: list(texts), **self.also}
        if self.count is not None:
            whole[self.count] = len(texts)
        if model is not None and self.model is not ModelField.NEVER:
            whole["model"] = model
        return orjson.dumps(whole)


SHAPES: Final[Mapping[Dialect, RequestShape]] = {
    Dialect.CONTRACT: RequestShape(
        "", ModelField.WHEN_GIVEN, count="top_k", also={"return_documents": False}
    ),
    Dialect.COHERE: RequestShape("/v2/rerank", ModelField.ALWAYS),
    Dialect.JINA: RequestShape("/v1/rerank", ModelField.ALWAYS, also={"return_documents": False}),
    Dialect.VOYAGE: RequestShape(
        "/v1/rerank",
        ModelField.ALWAYS,
        count="top_k",
        also={"return_documents": False, "truncation": True},
    ),
    Dialect.VLLM: RequestShape(
        "/v1/rerank", ModelField.WHEN_GIVEN, also={"truncate_prompt_tokens": -1}
    ),
    Dialect.TEI: RequestShape(
        "/rerank",
        ModelField.NEVER,
        texts="texts",
        count=None,
        also={"raw_scores": False, "return_text": False, "truncate": True},
        max_texts=32,  # its --max-client-batch-size, unless the server is started with another
    ),
}
_HOSTS: Final = {
    "api.cohere.com": Dialect.COHERE,
    "api.cohere.ai": Dialect.COHERE,
    "api.jina.ai": Dialect.JINA,
    "api.voyageai.com": Dialect.VOYAGE,
}


def parse_url(address: str) -> httpx.URL:
    """The address that is configured; ``Invalid`` names the setting."""
    try:
        url = httpx.URL(address)
    except httpx.InvalidURL as exc:
        raise Invalid(f"{URL_SETTING} cannot be read: {exc}") from exc
    if url.scheme not in ("http", "https") or not url.host:
        raise Invalid(f"{URL_SETTING} must be an http:// or https:// address")
    if url.userinfo:
        raise Invalid(f"{URL_SETTING} holds a password: give the key as LLC_RERANK_API_KEY")
    return url


def dialect_of(url: httpx.URL) -> Dialect:
    """The dialect a well-known host speaks; of any other, that of the contract."""
    return _HOSTS.get(url.host, Dialect.CONTRACT)


def endpoint_of(url: httpx.URL, dialect: Dialect) -> httpx.URL:
    """Where requests go: ``url`` itself, unless it names a host or the base of an API only."""
    path = url.path.rstrip("/")
    if not path:
        return url.copy_with(path=SHAPES[dialect].path or "/")
    if path.endswith(_VERSIONS) and dialect is not Dialect.CONTRACT:
        return url.copy_with(path=f"{path}/rerank")
    return url
