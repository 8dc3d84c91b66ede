"""Cross-encoders among the installed models: ``provider: <name>``, and what ``local`` means without LLC_RERANK_FOLDER."""

from __future__ import annotations

import difflib
from typing import Final

from latent_core.domain.errors import Invalid, Misconfigured
from latent_core.domain.retrieval import RERANKERS
from latent_core.models.onnx.graph import ModelPrecision
from latent_core.models.rerank.local import LocalReranker
from latent_core.models.store.layout import ModelStore
from latent_core.models.store.record import FULL_PRECISION, InstalledModel

EXAMPLE: Final = "cross-encoder/ms-marco-MiniLM-L6-v2"
_KNOWN: Final = {EXAMPLE.rpartition("/")[2].lower(): EXAMPLE}


class InstalledRerankers:
    """Looks at the disk at each search that reranks, so that a model is used as soon as it is installed."""

    def __init__(self, store: ModelStore) -> None:
        self._store = store
        self._opened: dict[str, LocalReranker] = {}

    def newest(self) -> LocalReranker | None:
        """The one that was installed last, of full precision if there is any; not loaded yet."""
        return self._best(self._rerankers())

    def named(self, name: str) -> LocalReranker | None:
        """The one of that name; of several, as ``newest``."""
        return self._best([model for model in self._rerankers() if model.name == name])

    def lacking(self, name: str) -> str | None:
        """Why ``name`` is no reranker here, and what to do; None if it is one."""
        there = self._rerankers()
        if any(model.name == name for model in there):
            return None
        if self._store.newest(name) is not None:
            return f"{name} embeds texts and reranks none: choose a reranker of latent models list"
        near = difflib.get_close_matches(name, {*RERANKERS, *(model.name for model in there)}, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        command = f"latent models add {_KNOWN.get(name, f'<owner>/{name}')}"
        return f"the reranker {name} is not installed on this machine: {command}{hint}"

    def _rerankers(self) -> list[InstalledModel]:
        return [model for model in self._store.models() if model.kind == "reranker"]

    def _best(self, found: list[InstalledModel]) -> LocalReranker | None:
        if not found:
            return None
        model = max(
            found,
            key=lambda model: (not model.suffix, model.precision in FULL_PRECISION, model.added_at),
        )
        if model.reference not in self._opened:
            try:
                self._opened[model.reference] = LocalReranker(
                    self._store.folder(model),
                    setting=model.reference,
                    precision=ModelPrecision(model.precision),
                )
            except Invalid as exc:
                raise Misconfigured(f"{exc.message}; {model.add_command} mends it") from exc
        return self._opened[model.reference]

    async def close(self) -> None:
        for reranker in self._opened.values():
            await reranker.close()
