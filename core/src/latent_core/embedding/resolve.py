"""Which embedder a manifest's ``embedder`` names. Each is opened once a process, at first use.

local, local-int8     all-MiniLM-L6-v2, in the process
local:<folder>        a model of the user's own, in the process
openai/<model>        at LLC_EMBED_BASE_URL
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Final, Protocol

from latent_core.domain.errors import Invalid, Unavailable
from latent_core.domain.manifest import Manifest
from latent_core.embedding import folder, minilm
from latent_core.embedding.local import LocalEmbedder, LocalModel
from latent_core.embedding.openai import OpenAiEmbedder
from latent_core.embedding.openai_wire import Endpoint
from latent_core.embedding.port import Embedder, EmbeddingModel
from latent_core.embedding.rate import TextRate
from latent_core.settings import Settings

OPENAI: Final = "openai/"
OPENAI_WITHOUT_PREFIX: Final = frozenset({"nomic-embed-multimodal-7b"})
"""Served in the openai dialect; the original contract names it so."""
TEXTS_PER_MINUTE: Final = 120
FIRST_VERSION: Final = "1"
"""Of a remote model, when the manifest does not say: the server does not tell."""
_BUILT_IN: Final = {variant.embedder: variant for variant in (minilm.FP32, minilm.INT8)}
_SHAPES: Final = (*_BUILT_IN, "local:<folder>", "openai/<model>")


class OfSpace(Protocol):
    """What made a space's vectors."""

    @property
    def embedder(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def dims(self) -> int: ...


class Embedders:
    """The embedders of a process. Opening one reads a tokenizer at most; models load at first use."""

    def __init__(self, settings: Settings, models: Path, *, threads: int | None = None) -> None:
        """``models`` is the folder that keeps local models; ``threads`` the cores that embed documents."""
        self._settings = settings
        self._models = models
        self._threads = threads
        per_minute = settings.embed_rate_limit_per_min
        # One endpoint, one key: whichever models are asked there share its limit.
        self._rate = TextRate(TEXTS_PER_MINUTE if per_minute is None else per_minute)
        self._local: dict[str, LocalEmbedder] = {}
        self._remote: dict[EmbeddingModel, OpenAiEmbedder] = {}

    def model_of(self, manifest: Manifest) -> EmbeddingModel:
        """The model that a container with this manifest gets; ``Invalid`` names what does not fit."""
        if _is_remote(manifest.embedder):
            # It need not be reachable: keywords are searched without it.
            return self._remote_model(manifest)
        model = self._open_local(manifest.embedder).model
        for key, wanted, installed in (
            ("embedder_version", manifest.embedder_version, model.version),
            ("dims", manifest.dims, model.dims),
        ):
            if wanted is not None and wanted != installed:
                raise Invalid(
                    f"{key} is {wanted!r}, but the embedder {model.embedder} has {installed!r}:"
                    f" leave {key} out, or name that"
                )
        return model

    def for_space(self, space: OfSpace) -> Embedder:
        """The embedder that made the vectors of ``space``; ``Unavailable`` when it is not to be had here."""
        if _is_remote(space.embedder):
            self._check_reachable(space.embedder)
            window = self._settings.embed_window
            return self._open_remote(
                EmbeddingModel(space.embedder, space.version, space.dims, window)
            )
        embedder = self._open_local(space.embedder)
        if (embedder.model.version, embedder.model.dims) != (space.version, space.dims):
            raise Unavailable(
                f"the vectors were made by {space.embedder} {space.version} ({space.dims} dimensions), but"
                f" {embedder.model.version} ({embedder.model.dims}) is installed: install that version again"
            )
        return embedder

    def _remote_model(self, manifest: Manifest) -> EmbeddingModel:
        if manifest.dims is None:
            raise Invalid(
                f"dims: say how many dimensions {manifest.embedder} has; a server does not tell beforehand"
            )
        version = manifest.embedder_version or FIRST_VERSION
        return EmbeddingModel(
            manifest.embedder, version, manifest.dims, self._settings.embed_window
        )

    def _check_reachable(self, name: str) -> None:
        if not self._settings.embed_base_url:
            raise Unavailable(f"the embedder {name} is reached over HTTP: set LLC_EMBED_BASE_URL")

    def _open_remote(self, model: EmbeddingModel) -> OpenAiEmbedder:
        if model not in self._remote:
            endpoint = Endpoint(
                self._settings.embed_base_url or "",
                self._settings.embed_api_key,
                model.embedder.removeprefix(OPENAI),
                model.dims,
            )
            self._remote[model] = OpenAiEmbedder(model, endpoint, self._rate)
        return self._remote[model]

    def _open_local(self, name: str) -> LocalEmbedder:
        if name not in self._local:
            self._local[name] = LocalEmbedder(self._local_model(name), threads=self._threads)
        return self._local[name]

    def _local_model(self, name: str) -> LocalModel:
        if name in _BUILT_IN:
            return minilm.built_in(_BUILT_IN[name], self._models)
        if name.startswith(folder.PREFIX):
            return folder.from_folder(name)
        near = difflib.get_close_matches(name, _BUILT_IN, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(_SHAPES)}"
        raise Invalid(f"embedder '{name}' is not known; {hint}")

    async def close(self) -> None:
        for local in self._local.values():
            await local.close()
        for remote in self._remote.values():
            await remote.close()


def _is_remote(name: str) -> bool:
    return (name.startswith(OPENAI) and name != OPENAI) or name in OPENAI_WITHOUT_PREFIX
