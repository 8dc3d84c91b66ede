"""Cross-encoders among the installed models: what ``local`` means if LLC_RERANK_FOLDER is not set."""

from __future__ import annotations

from latent_core.domain.errors import Invalid, Misconfigured
from latent_core.models.onnx.graph import ModelPrecision
from latent_core.models.rerank.local import LocalReranker
from latent_core.models.store.layout import ModelStore
from latent_core.models.store.record import FULL_PRECISION


class InstalledRerankers:
    """Looks at the disk at each search that reranks, so that a model is used as soon as it is installed."""

    def __init__(self, store: ModelStore) -> None:
        self._store = store
        self._opened: dict[str, LocalReranker] = {}

    def newest(self) -> LocalReranker | None:
        """The one that was installed last, of full precision if there is any; not loaded yet."""
        found = [model for model in self._store.models() if model.kind == "reranker"]
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
