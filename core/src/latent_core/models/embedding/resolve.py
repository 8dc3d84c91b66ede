"""Opens the embedder that a manifest's ``embedder`` names, once per process, at first use.

local, local-int8     all-MiniLM-L6-v2, in the process
local:<folder>        a user's own model, in the process
openai/<model>        at LLC_EMBED_BASE_URL, texts
vllm/<model>          at LLC_EMBED_BASE_URL, texts and pictures
jina/<model>          the same in Jina's dialect
nomic/<model>         Nomic's own API: a text model, or a vision model and the text model of the same space

The name also determines whether a model reads images, so this is a property of the embedding space.
"""

from __future__ import annotations

import difflib
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from latent_core.db.containers import Space
from latent_core.domain.errors import Invalid, Misconfigured, Unavailable
from latent_core.domain.manifest.model import (
    JINA,
    NOMIC,
    OPENAI,
    VLLM,
    VLLM_WITHOUT_PREFIX,
    Manifest,
    reads_images,
)
from latent_core.models.embedding import minilm, onnx_format
from latent_core.models.embedding.api.nomic import NomicClient, NomicVisionClient
from latent_core.models.embedding.api.openai import JinaClient, OpenAiEmbedder, VllmClient
from latent_core.models.embedding.api.remote import (
    QUERY_CONNECTIONS,
    Breaker,
    RemoteEmbedder,
    RetryPolicy,
)
from latent_core.models.embedding.api.wire import EmbeddingEndpoint
from latent_core.models.embedding.drift import AdaptedEmbedder, Adapters
from latent_core.models.embedding.local import LocalEmbedder, LocalModel
from latent_core.models.embedding.port import Embedder, EmbeddingModel, prefixes_of
from latent_core.models.embedding.rate import Rate, TextRate
from latent_core.settings import Settings

TEXTS_PER_MINUTE: Final = 120
CONNECTIONS: Final = RetryPolicy().requests + QUERY_CONNECTIONS
FIRST_VERSION: Final = "1"
"""Version of a remote model if the manifest has none: servers do not report it."""
_BUILT_IN: Final = {variant.embedder: variant for variant in (minilm.FP32, minilm.INT8)}
_SHAPES: Final = (
    *_BUILT_IN,
    "local:<folder>",
    "openai/<model>",
    "vllm/<model>",
    "jina/<model>",
    "nomic/<model>",
)


class OfSpace(Protocol):
    """The embedder of a space's vectors."""

    @property
    def embedder(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def dims(self) -> int: ...


class EmbedderRegistry:
    """The embedders of a process. Opening one reads at most a tokenizer; models load at first use."""

    def __init__(
        self,
        settings: Settings,
        models: Path,
        *,
        threads: int | None = None,
        rate: Rate | None = None,
    ) -> None:
        """``models`` is the folder of local models; ``threads`` the number of cores for documents; ``rate`` the limit
        shared with other processes, by default one of this process."""
        self._settings = settings
        self._models = models
        self._threads = threads
        # All models behind one key share its rate limit, and those at one address share a breaker.
        self._rate = rate or TextRate(per_minute_of(settings))
        self._breakers: dict[str, Breaker] = {}
        self._local: dict[str, LocalEmbedder] = {}
        self._remote: dict[EmbeddingModel, RemoteEmbedder] = {}
        self._adapted: dict[int, AdaptedEmbedder] = {}
        self._adapters: Adapters | None = None

    def keep_adapters_in(self, adapters: Adapters) -> None:
        """Set the source of drift adapters. Called once, when the stack is opened."""
        self._adapters = adapters

    def model_of(self, manifest: Manifest) -> EmbeddingModel:
        """The model of a container with this manifest; ``Invalid`` names a key that does not fit."""
        if _is_remote(manifest.embedder):
            # It need not be reachable: keyword search works without it.
            return self._remote_model(manifest)
        model = self._open_local(manifest.embedder).model
        for key, pinned, installed in (
            ("embedder_version", manifest.embedder_version, model.version),
            ("dims", manifest.dims, model.dims),
        ):
            if pinned is not None and pinned != installed:
                raise Invalid(
                    f"{key} is {pinned!r}, but the embedder {model.embedder} has {installed!r}:"
                    f" remove {key}, or set it to that value"
                )
        return model

    def for_space(self, space: OfSpace) -> Embedder:
        """The embedder of the vectors of ``space``; ``Misconfigured`` when it is not available here."""
        if isinstance(space, Space) and space.is_adapted:
            return self._open_adapted(space)
        if _is_remote(space.embedder):
            self._check_reachable(space.embedder)
            window = self._settings.embed_window
            return self._open_remote(
                remote_model(space.embedder, space.version, space.dims, window)
            )
        embedder = self._open_local(space.embedder)
        if (embedder.model.version, embedder.model.dims) != (space.version, space.dims):
            raise Misconfigured(
                f"the vectors were made by {space.embedder} {space.version} ({space.dims} dimensions), but"
                f" {embedder.model.version} ({embedder.model.dims}) is installed: install that version again"
            )
        return embedder

    def _open_adapted(self, space: Space) -> AdaptedEmbedder:
        if self._adapters is None or space.adapter is None:
            raise Unavailable("this process has no database connection to read drift adapters from")
        if space.adapter not in self._adapted:
            own = replace(space, dims=space.embedder_dims or space.dims, adapter=None, shares=None)
            self._adapted[space.adapter] = AdaptedEmbedder(
                self.for_space(own), space.adapter, space.dims, self._adapters
            )
        return self._adapted[space.adapter]

    def _remote_model(self, manifest: Manifest) -> EmbeddingModel:
        if manifest.dims is None:
            raise Invalid(
                f"dims: set the number of dimensions of {manifest.embedder}; the server does not report it"
            )
        version = manifest.embedder_version or FIRST_VERSION
        return remote_model(manifest.embedder, version, manifest.dims, self._settings.embed_window)

    def lacking(self, name: str) -> str | None:
        """The setting that the remote embedder ``name`` needs, as a message; None when nothing is missing."""
        if name.startswith(NOMIC):
            pinned = self._settings.embed_api_key is None
            return (
                f"the embedder {name} uses Nomic's own API, which needs a key: set LLC_NOMIC_API_KEY"
                if pinned
                else None
            )
        if _is_remote(name) and not self._settings.embed_base_url:
            return f"the embedder {name} is reached over HTTP: set LLC_EMBED_BASE_URL"
        return None

    def _check_reachable(self, name: str) -> None:
        if (missing := self.lacking(name)) is not None:
            raise Misconfigured(missing)

    def _open_remote(self, model: EmbeddingModel) -> RemoteEmbedder:
        if model not in self._remote:
            self._remote[model] = self._made_remote(model)
        return self._remote[model]

    def _made_remote(self, model: EmbeddingModel) -> RemoteEmbedder:
        name = model.embedder
        if name.startswith(NOMIC):
            return self._of_nomic(model)
        endpoint = EmbeddingEndpoint(
            self._settings.embed_base_url or "",
            self._settings.embed_api_key,
            _bare(name),
            model.dims,
        )
        breaker = self._breaker(endpoint)
        if not model.reads_images:
            return OpenAiEmbedder(model, endpoint, self._rate, breaker=breaker)
        made = JinaClient if name.startswith(JINA) else VllmClient
        client = made(endpoint, connections=CONNECTIONS)
        prefixes = prefixes_of(endpoint.model)
        return RemoteEmbedder(
            model, client, self._rate, prefixes=prefixes, breaker=breaker, images=client
        )

    def _of_nomic(self, model: EmbeddingModel) -> RemoteEmbedder:
        settings = self._settings
        endpoint = EmbeddingEndpoint(
            settings.nomic_base_url,
            settings.embed_api_key,
            model.embedder.removeprefix(NOMIC),
            model.dims,
            setting="LLC_NOMIC_BASE_URL",
            key_setting="LLC_NOMIC_API_KEY",
        )
        breaker = self._breaker(endpoint)
        if model.reads_images:
            both = NomicVisionClient(endpoint, connections=CONNECTIONS)
            return RemoteEmbedder(model, both, self._rate, breaker=breaker, images=both)
        client = NomicClient(endpoint, connections=CONNECTIONS)
        return RemoteEmbedder(model, client, self._rate, breaker=breaker)

    def _breaker(self, endpoint: EmbeddingEndpoint) -> Breaker:
        return self._breakers.setdefault(endpoint.base_url, Breaker())

    def _open_local(self, name: str) -> LocalEmbedder:
        if name not in self._local:
            self._local[name] = LocalEmbedder(self._local_model(name), threads=self._threads)
        return self._local[name]

    def _local_model(self, name: str) -> LocalModel:
        if name in _BUILT_IN:
            return minilm.built_in(_BUILT_IN[name], self._models)
        if name.startswith(onnx_format.PREFIX):
            return onnx_format.from_folder(name)
        near = difflib.get_close_matches(name, _BUILT_IN, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(_SHAPES)}"
        raise Invalid(f"embedder '{name}' is not known; {hint}")

    async def close(self) -> None:
        for local in self._local.values():
            await local.close()
        for remote in self._remote.values():
            await remote.close()


def per_minute_of(settings: Settings) -> int:
    given = settings.embed_rate_limit_per_min
    return TEXTS_PER_MINUTE if given is None else given


def key_of_endpoint(settings: Settings) -> str:
    """Name of the limit that all processes with this endpoint and key share: a hash that reveals neither."""
    key = settings.embed_api_key.get_secret_value() if settings.embed_api_key else ""
    return hashlib.sha256(f"{settings.embed_base_url}\0{key}".encode()).hexdigest()[:32]


def remote_model(name: str, version: str, dims: int, window: int) -> EmbeddingModel:
    return EmbeddingModel(name, version, dims, window, reads_images(name))


def _bare(name: str) -> str:
    """The model's name on its server: without the first prefix only, since the rest may look like another prefix."""
    for prefix in (OPENAI, VLLM, JINA):
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def is_served(name: str) -> bool:
    """Whether ``name`` is reached at LLC_EMBED_BASE_URL."""
    prefixes = (OPENAI, VLLM, JINA)
    return name in VLLM_WITHOUT_PREFIX or any(
        name.startswith(prefix) and name != prefix for prefix in prefixes
    )


def _is_remote(name: str) -> bool:
    return is_served(name) or (name.startswith(NOMIC) and name != NOMIC)
