"""Embedders among the installed models: ``embedder: <name>`` in a manifest."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path

from latent_core.domain.errors import Invalid
from latent_core.models.embedding.folder_model import loader_of, local_model
from latent_core.models.embedding.local import LocalModel
from latent_core.models.embedding.reference import Reference
from latent_core.models.onnx.folder import ModelPrecision, describe
from latent_core.models.store.known import KNOWN, NEED_E5_PROMPTS, PAIRS
from latent_core.models.store.layout import ModelStore
from latent_core.models.store.record import (
    E5_PROMPTS,
    InstalledModel,
    ReferenceVectors,
    add_command,
    base_version,
    prompt_options,
)
from latent_core.runtime.process import cores


class InstalledEmbedders:
    """Finds the installed model that a manifest or an embedding space means."""

    def __init__(self, store: ModelStore) -> None:
        self._store = store

    def find(
        self, name: str, version: str | None, *, images: bool = False
    ) -> InstalledModel | None:
        """The model of ``version``; without one, the newest of ``name``, rather one that reads images if ``images``.
        None if it is not installed."""
        if version is None:
            return self._store.newest(name, images=images)
        found = self._store.of_version(version)
        return found if found is not None and found.name == name else None

    def lacking(self, name: str, version: str | None, *, images: bool = False) -> str | None:
        """Why the embedder cannot be used, with the command that mends it; None if it can."""
        found = self.find(name, version)
        if found is None:
            return f"the embedder {name} is not installed on this machine: {self._remedy(name, version, images)}"
        if found.kind == "reranker":
            return (
                f"{name} is a reranker and embeds nothing: choose an embedder of latent models list"
            )
        if found.window is None:
            return (
                f"{name} embeds pictures alone: install it with the model of texts of its space,"
                f" latent models add {_texts_of(found.hub_id)} --with {found.hub_id}, and name that one"
            )
        return None

    def opened(
        self, name: str, version: str | None, others: Iterable[str], *, images: bool = False
    ) -> InstalledModel:
        """The model; ``Invalid`` with the nearest name of ``others`` or with the command that installs it."""
        missing = self.lacking(name, version, images=images)
        found = self.find(name, version, images=images)
        if found is not None and missing is None:
            return found
        if found is None and version is None and name not in KNOWN:
            missing = f"{missing}; {self._hint(name, list(others))}"
        raise Invalid(missing or f"the embedder {name} cannot be opened")

    def _hint(self, name: str, others: list[str]) -> str:
        near = difflib.get_close_matches(name, [*others, *self._names()], n=1)
        if near:
            return f"did you mean '{near[0]}'?"
        return f"known are {', '.join([*others, 'local:<folder>', '<provider>/<model>'])}"

    def local_model(
        self, model: InstalledModel, dims: int | None, version: str | None = None
    ) -> LocalModel:
        """The model, not loaded yet. ``dims`` keeps the first dimensions only. ``version``: of vectors, by default that
        of a new container."""
        given = model.prompts if model.prompts_given else None
        described = describe(self._store.folder(model), ModelPrecision(model.precision), given)
        reference = None
        if model.vectors is not None:
            reference = Reference.of_record(model.vectors, _remedy_of(model))
        named = base_version(version or model.vector_version)
        return local_model(model.name, named, described, dims, reference)

    def _remedy(self, name: str, version: str | None, images: bool) -> str:
        if version is not None and "@" in version:
            return add_command(version)
        hub_id = KNOWN.get(name, f"<owner>/{name}")
        command = add_command(hub_id)
        if images and hub_id in PAIRS:
            command += f" --with {PAIRS[hub_id]}"
        return command + (prompt_options(E5_PROMPTS) if name in NEED_E5_PROMPTS else "")

    def _names(self) -> set[str]:
        return {*KNOWN, *(model.name for model in self._store.models())}


def vectors_of(
    folder: Path, name: str, precision: str, prompts: Mapping[str, str] | None
) -> ReferenceVectors | None:
    """What the model in ``folder`` computes, to be kept in its record; None if it embeds no texts. Blocks while it is
    loaded and run."""
    described = describe(folder, ModelPrecision(precision), prompts)
    if described.kind == "reranker" or described.text is None:
        return None
    return loader_of(name, described).computed(cores())


def _remedy_of(model: InstalledModel) -> str:
    return (
        f"`latent models verify {model.reference}` finds damaged files. If there are none, this machine computes"
        " differently: use the runtime it was added with, or remove the model, add it again and refresh its containers"
    )


def _texts_of(pictures: str) -> str:
    """The model of texts in the space of ``pictures``."""
    return next((texts for texts, own in PAIRS.items() if own == pictures), "<hub id of texts>")
