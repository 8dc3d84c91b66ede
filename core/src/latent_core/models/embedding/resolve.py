"""Opens the embedder that a manifest's ``embedder`` names, once per process, at first use.

local, local-int8     all-MiniLM-L6-v2, in the process
local-multilingual    multilingual-e5-small, in the process
local:<folder>        a user's own model, in the process
<model>               an installed model, in the process (``models.store``)
<provider>/<model>    a model of a provider (``models.providers.registry``)

The name also determines whether a model reads images, so this is a property of the embedding space.
"""

from __future__ import annotations

import asyncio
import difflib
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from latent_core.db.containers import Space
from latent_core.domain.chunk import Modality
from latent_core.domain.errors import Invalid, LatentError, Misconfigured, ModelMissing, Unavailable
from latent_core.domain.manifest.model import Manifest, is_installable, is_local
from latent_core.models.embedding import folder_model, minilm, multilingual
from latent_core.models.embedding.api.identity import References
from latent_core.models.embedding.api.open import RemoteEmbedders, default_version, remote_model
from latent_core.models.embedding.drift import AdaptedEmbedder, Adapters
from latent_core.models.embedding.installed import InstalledEmbedders
from latent_core.models.embedding.local import LocalEmbedder, LocalModel
from latent_core.models.embedding.port import Embedder, EmbeddingModel
from latent_core.models.embedding.rate import Rate, TextRate
from latent_core.models.providers.registry import ProviderModel, Providers
from latent_core.models.store.layout import ModelStore
from latent_core.models.store.record import InstalledModel, base_version
from latent_core.models.store.use_lock import in_use
from latent_core.settings import Settings

_BUILT_IN: Final = {variant.embedder: variant for variant in (minilm.FP32, minilm.INT8)}
MEASURED_SECONDS: Final = 60.0
"""After this time a new container asks its server again how many dimensions it gives."""
_SHAPES: Final = (*_BUILT_IN, multilingual.VARIANT.embedder, "local:<folder>", "<provider>/<model>")


class OfSpace(Protocol):
    """The embedder of a space's vectors."""

    @property
    def embedder(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def dims(self) -> int: ...


class EmbedderRegistry:
    """The embedders of a process. Opening one reads at most a tokenizer; models load at first use.

    ``for_space`` and ``model_of`` block while files are read, up to seconds for a tokenizer of many languages: event
    loops await ``opened``, or call them in a thread.
    """

    def __init__(
        self,
        settings: Settings,
        models: Path,
        *,
        threads: int | None = None,
        rates: Callable[[str, int], Rate] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``models`` is the folder of local models; ``threads`` the number of cores for documents; ``rates`` makes the
        limit of a name and a number of texts per minute, shared with other processes; by default one of this process.
        ``Invalid`` names what is wrong in the file of providers."""
        self._models = models
        self.store = ModelStore(models)
        self._installed = InstalledEmbedders(self.store)
        self._threads = threads
        self.providers = Providers.of(settings)
        self._remote = RemoteEmbedders(rates or (lambda _, per_minute: TextRate(per_minute)))
        self._local: dict[str, LocalEmbedder] = {}
        self._adapted: dict[int, AdaptedEmbedder] = {}
        self._adapters: Adapters | None = None
        self._measured_dims: dict[str, tuple[int, float]] = {}
        """Of remote embedders whose manifest leaves them open, by name; with the time at which they are asked again."""
        self._clock = clock
        self._opening = threading.Lock()
        self._opened: set[tuple[str, str, int]] = set()
        """Spaces that were opened: opening them again reads no large file."""

    def keep_adapters_in(self, adapters: Adapters) -> None:
        """Set the source of drift adapters. Called once, when the stack is opened."""
        self._adapters = adapters

    def keep_references_in(self, references: References) -> None:
        """Set where the references of remote models are stored. Called once, before any is opened."""
        self._remote.references = references

    async def measure(self, manifest: Manifest) -> None:
        """Ask a remote embedder for its dimensions if the manifest leaves them open, before ``model_of``. Call it
        outside of transactions: it waits for the server. An answer counts for a minute, since the model behind a name
        may change."""
        name = manifest.embedder
        _, valid_until = self._measured_dims.get(name, (0, 0.0))
        if manifest.dims is not None or self._clock() < valid_until:
            return
        found = self.providers.embedding(name)
        if found is None:
            return
        self._check_configured(name)
        try:
            dims = await self._remote.dims(found, _version(manifest, found))
        except LatentError as exc:
            raise type(exc)(
                f"the dimensions of {name} are not known, since a short text could not be embedded: {exc.message}. Set"
                " dims to use it without asking",
                **exc.details,
            ) from exc
        self._measured_dims[name] = (dims, self._clock() + MEASURED_SECONDS)

    @asynccontextmanager
    async def held(self, name: str) -> AsyncIterator[None]:
        """The installed models that an embedder's name means are not removed until the block ends: a container that is
        created in it has a row that the next removal sees."""
        if not is_installable(name):
            yield
            return
        async with in_use(self.store, name):
            yield

    def model_of(self, manifest: Manifest) -> EmbeddingModel:
        """The model of a container with this manifest; ``Invalid`` names a key that does not fit."""
        found = self.providers.embedding(manifest.embedder)
        if found is not None:
            # It need not be reachable: keyword search works without it.
            return self._remote_model(manifest, found)
        model = self._of_manifest(manifest).model
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

    def _of_manifest(self, manifest: Manifest) -> LocalEmbedder:
        name = manifest.embedder
        if is_installable(name):
            known = [*_BUILT_IN, multilingual.VARIANT.embedder]
            images = Modality.IMAGE in manifest.modalities
            found = self._installed.opened(name, manifest.embedder_version, known, images=images)
            version = manifest.embedder_version or found.vector_version
            return self._open_installed(found, version, manifest.dims)
        return self._open_local(name, manifest.dims)

    async def opened(self, space: OfSpace) -> Embedder:
        """``for_space`` for an event loop: what is read for the first time is read in a thread."""
        key = (space.embedder, space.version, space.dims)
        if key in self._opened:
            return self.for_space(space)
        embedder = await asyncio.to_thread(self.for_space, space)
        self._opened.add(key)
        return embedder

    def for_space(self, space: OfSpace) -> Embedder:
        """The embedder of the vectors of ``space``; ``ModelMissing`` when it is not available here."""
        if isinstance(space, Space) and space.is_adapted:
            return self._open_adapted(space)
        if is_installable(space.embedder):
            return self._installed_for(space)
        if not is_local(space.embedder):
            self._check_there(space)
            if (found := self.providers.embedding(space.embedder)) is not None:
                model = remote_model(space.embedder, space.version, space.dims, found.provider)
                return self._remote.open(model, found)
        embedder = self._local_for(space)
        if (embedder.model.version, embedder.model.dims) != (space.version, space.dims):
            raise ModelMissing(
                f"the vectors were made by {space.embedder} {space.version} ({space.dims} dimensions), but"
                f" {embedder.model.version} ({embedder.model.dims}) is installed: install that version again, or"
                f" change the container to this one: latent refresh CONTAINER --to {space.embedder}"
            )
        return embedder

    def _local_for(self, space: OfSpace) -> LocalEmbedder:
        try:
            return self._open_local(space.embedder, space.dims)
        except (
            Invalid,
            Misconfigured,
        ):  # a folder that has fewer dimensions now, or a package that is gone
            with _missing():
                return self._open_local(space.embedder, None)

    def _installed_for(self, space: OfSpace) -> LocalEmbedder:
        """Searches call this several times: its record is read once."""
        opened = self._local.get(_key(space.version, space.dims))
        if opened is not None and self.store.has(space.version):
            return opened
        self._check_there(space)
        with _missing():
            found = self._installed.opened(space.embedder, space.version, ())
            return self._open_installed(found, space.version, space.dims)

    def _open_installed(
        self, found: InstalledModel, version: str, dims: int | None
    ) -> LocalEmbedder:
        """Its tokenizer is read once: that of a large vocabulary takes a second."""
        key = _key(version, dims or found.dims or 0)
        return self._once(key, lambda: self._installed.local_model(found, dims, version))

    def _once(self, key: str, described: Callable[[], LocalModel]) -> LocalEmbedder:
        """The embedder of ``key``, by whichever thread comes first."""
        if key not in self._local:
            with self._opening:
                if key not in self._local:
                    self._local[key] = LocalEmbedder(described(), threads=self._threads)
        return self._local[key]

    def _open_adapted(self, space: Space) -> AdaptedEmbedder:
        if self._adapters is None or space.adapter is None:
            raise Unavailable("this process has no database connection to read drift adapters from")
        if space.adapter not in self._adapted:
            own = replace(space, dims=space.embedder_dims or space.dims, adapter=None, shares=None)
            self._adapted[space.adapter] = AdaptedEmbedder(
                self.for_space(own), space.adapter, space.dims, self._adapters
            )
        return self._adapted[space.adapter]

    def _remote_model(self, manifest: Manifest, found: ProviderModel) -> EmbeddingModel:
        dims = manifest.dims or self._measured_dims.get(manifest.embedder, (None,))[0]
        if dims is None:
            raise Invalid(
                f"dims: set the number of dimensions of {manifest.embedder}; its server was not asked for them"
            )
        return remote_model(manifest.embedder, _version(manifest, found), dims, found.provider)

    def of_provider(self, name: str) -> ProviderModel | None:
        """The provider and model of a remote embedder, ready for use; None if it is local."""
        found = self.providers.embedding(name)
        if found is not None:
            self._check_configured(name)
        return found

    def lacking(self, name: str, version: str | None = None) -> str | None:
        """What the embedder ``name`` needs before it can be used, as a message; None when nothing is missing.
        ``version`` is that of stored vectors, whose model may be another one now."""
        lacks = self._lacks(name, version)
        if lacks is not None or version is None:
            return lacks
        return self._remote.other_model(name, version)

    def _lacks(self, name: str, version: str | None) -> str | None:
        if is_installable(name):
            return self._installed.lacking(name, version)
        if is_local(name):
            return None
        found = self.providers.find(name)
        if found is None:
            unknown = self.providers.unknown(name)
            return f"the embedder {name} cannot be used: {unknown}" if unknown else None
        missing = found.provider.missing()
        return f"the embedder {name} {missing}" if missing else None

    def _check_configured(self, name: str) -> None:
        if (missing := self.lacking(name)) is not None:
            raise Misconfigured(missing)

    def _check_there(self, space: OfSpace) -> None:
        if (missing := self._lacks(space.embedder, space.version)) is not None:
            raise ModelMissing(missing)

    def price_of(self, name: str) -> float:
        """Of a million tokens; 0 if it is local or not known."""
        found = self.providers.find(name)
        return found.provider.price if found else 0.0

    def rate_of(self, name: str) -> tuple[int, str] | None:
        """Texts per minute of a remote embedder, and the setting that says so; None if only its server limits it."""
        found = self.providers.find(name)
        rate = found.provider.per_minute(found.model) if found else None
        return None if found is None or rate is None else (rate, found.provider.rate_setting)

    def _open_local(self, name: str, dims: int | None) -> LocalEmbedder:
        """``dims``: of a folder's model, the first dimensions to keep; built-in models have their own."""
        key = f"{name} {dims or 0}" if name.startswith(folder_model.PREFIX) else name
        return self._once(key, lambda: self._local_model(name, dims))

    def _local_model(self, name: str, dims: int | None) -> LocalModel:
        if name in _BUILT_IN:
            return minilm.built_in(_BUILT_IN[name], self._models)
        if name == multilingual.VARIANT.embedder:
            return multilingual.built_in(self._models)
        if name.startswith(folder_model.PREFIX):
            return folder_model.from_folder(name, dims)
        unknown = self.providers.unknown(name)
        near = difflib.get_close_matches(name, _BUILT_IN, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(_SHAPES)}"
        raise Invalid(f"embedder '{name}' is not known; {unknown or hint}")

    async def close(self) -> None:
        for local in self._local.values():
            await local.close()
        await self._remote.close()


@contextmanager
def _missing() -> Iterator[None]:
    """Files that cannot be used are a missing model, once there are vectors."""
    try:
        yield
    except (Invalid, Misconfigured) as exc:
        raise ModelMissing(exc.message) from exc


def _key(version: str, dims: int) -> str:
    return f"{base_version(version)} {dims}"


def _version(manifest: Manifest, found: ProviderModel) -> str:
    return manifest.embedder_version or default_version(found.provider)
