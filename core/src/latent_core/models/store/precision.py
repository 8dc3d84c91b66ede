"""Which weights of half precision count as those of fp32, by the vectors that both computed when they were added."""

from __future__ import annotations

from latent_core.models.store.layout import ModelStore
from latent_core.models.store.record import HALF_PRECISION, InstalledModel


def compared(store: ModelStore, model: InstalledModel) -> InstalledModel:
    """``model``, of half precision, with the vectors of the installed fp32 weights if it reproduces them; any other is
    returned as it is."""
    if model.precision not in HALF_PRECISION or model.counts_as_fp32:
        return model
    full = next((m for m in store.models() if m.precision == "fp32" and _alike(m, model)), None)
    return model if full is None else _by(full, model)


def compare_others(store: ModelStore, full: InstalledModel) -> None:
    """The same for what is installed, now that ``full`` is. The caller holds the lock of its name."""
    if full.precision != "fp32":
        return
    for model in store.models():
        if model.precision in HALF_PRECISION and not model.counts_as_fp32 and _alike(full, model):
            found = _by(full, model)
            if found.counts_as_fp32:
                store.rewrite(found)


def _alike(full: InstalledModel, half: InstalledModel) -> bool:
    """Whether only the precision differs."""
    keys = ("hub_id", "revision", "prompts", "prompts_given", "partner", "dims")
    return all(getattr(full, key) == getattr(half, key) for key in keys)


def _by(full: InstalledModel, half: InstalledModel) -> InstalledModel:
    if full.vectors is None or half.vectors is None or not half.vectors.agrees_with(full.vectors):
        return half
    return half.model_copy(update={"vectors": full.vectors, "counts_as_fp32": True})
