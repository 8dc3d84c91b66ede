"""Opens embedders of providers, once per process. All models behind one key share its limit, and those at one address
a breaker."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from latent_core.domain.manifest.model import reads_images
from latent_core.models.embedding.api.dialects import TextClient
from latent_core.models.embedding.api.identity import References
from latent_core.models.embedding.api.nomic import NomicVisionClient
from latent_core.models.embedding.api.pictures import JinaClient, VllmClient
from latent_core.models.embedding.api.remote import (
    QUERY_CONNECTIONS,
    Breaker,
    RemoteEmbedder,
    RetryPolicy,
)
from latent_core.models.embedding.api.wire import DialectClient, EmbeddingEndpoint, ImageClient
from latent_core.models.embedding.port import NONE, EmbeddingModel, prefixes_of
from latent_core.models.embedding.rate import Rate
from latent_core.models.providers.entry import Kind
from latent_core.models.providers.facts import server_facts
from latent_core.models.providers.registry import UNLIMITED, Provider, ProviderModel

FIRST_VERSION: Final = "1"
"""Version of a remote model if the manifest has none: servers do not report it."""
WITH_TASK: Final = "2"
"""The same for Jina's models: requests of version 1 had no task."""
_REPORTS: Final = frozenset({Kind.OLLAMA, Kind.VLLM, Kind.TEI})
_HAS_INPUT_TYPES: Final = frozenset({Kind.JINA, Kind.NOMIC, Kind.VOYAGE, Kind.COHERE, Kind.GEMINI})
"""Kinds whose requests have the input type; for others we add the prefixes of the model."""
PROBE_TEXT: Final = "a test"


def default_version(provider: Provider) -> str:
    return WITH_TASK if provider.kind is Kind.JINA else FIRST_VERSION


def remote_model(name: str, version: str, dims: int, provider: Provider) -> EmbeddingModel:
    return EmbeddingModel(name, version, dims, provider.window, reads_images(name))


def endpoint_of(found: ProviderModel, dims: int | None) -> EmbeddingEndpoint:
    provider = found.provider
    return EmbeddingEndpoint(
        provider.base_url or "",
        provider.secret(),
        found.model,
        dims,
        setting=provider.address_setting,
        key_setting=provider.key_setting,
        key_header=provider.key_header,
    )


def text_client(
    found: ProviderModel, dims: int | None, version: str, connections: int
) -> TextClient:
    return TextClient(
        found.provider.kind,
        endpoint_of(found, dims),
        connections=connections,
        options=found.provider.options,
        task=version != FIRST_VERSION,
    )


class RemoteEmbedders:
    def __init__(self, rates: Callable[[str, int], Rate]) -> None:
        """``rates`` makes the limit of a name and a number of texts per minute."""
        self._make_rate = rates
        self.references: References | None = None
        """Of models whose vectors are stored; None where nothing is."""
        self._rates: dict[str, Rate] = {}
        self._breakers: dict[str, Breaker] = {}
        self._open: dict[EmbeddingModel, RemoteEmbedder] = {}
        self._opening = threading.Lock()

    def open(self, model: EmbeddingModel, found: ProviderModel) -> RemoteEmbedder:
        """The same for all threads: models behind one key share its limit."""
        if model not in self._open:
            with self._opening:
                if model not in self._open:
                    self._open[model] = self._made(model, found)
        return self._open[model]

    async def dims(self, found: ProviderModel, version: str) -> int:
        """The dimensions of the answer to one short text."""
        client = text_client(found, None, version, 1)
        try:
            answer = await client.embed([PROBE_TEXT])
        finally:
            await client.close()
        return int(answer.rows.shape[1])

    def _made(self, model: EmbeddingModel, found: ProviderModel) -> RemoteEmbedder:
        provider = found.provider
        policy = RetryPolicy()
        if provider.concurrency is not None:
            policy = RetryPolicy(requests=provider.concurrency)
        client, images = _clients(model, found, policy.requests + QUERY_CONNECTIONS)
        kind = provider.kind
        return RemoteEmbedder(
            model,
            client,
            self._rate(found),
            retry_policy=policy,
            prefixes=NONE if kind in _HAS_INPUT_TYPES else prefixes_of(found.model),
            breaker=self._breakers.setdefault(provider.base_url or "", Breaker()),
            images=images,
            facts=partial(server_facts, provider, found.model) if kind in _REPORTS else None,
            references=self.references,
        )

    def other_model(self, name: str, version: str) -> str | None:
        """Why the model behind a name is another one than that of the vectors of ``version``, as far as this process
        knows."""
        used = [e for m, e in self._open.items() if (m.embedder, m.version) == (name, version)]
        return next((embedder.other_model for embedder in used if embedder.other_model), None)

    def _rate(self, found: ProviderModel) -> Rate:
        per_minute = found.provider.per_minute(found.model) or UNLIMITED
        name = found.provider.limit_name(per_minute)
        if name not in self._rates:
            self._rates[name] = self._make_rate(name, per_minute)
        return self._rates[name]

    async def close(self) -> None:
        for embedder in self._open.values():
            await embedder.close()


def _clients(
    model: EmbeddingModel, found: ProviderModel, connections: int
) -> tuple[DialectClient, ImageClient | None]:
    if not model.reads_images:
        return text_client(found, model.dims, model.version, connections), None
    endpoint = endpoint_of(found, model.dims)
    match found.provider.kind:
        case Kind.NOMIC:
            both: ImageClient = NomicVisionClient(endpoint, connections=connections)
        case Kind.JINA:
            task = model.version != FIRST_VERSION
            both = JinaClient(endpoint, connections=connections, task=task)
        case _:
            both = VllmClient(endpoint, connections=connections)
    return both, both
