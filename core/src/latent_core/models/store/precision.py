"""The precision of weights: which one is installed, and which half precision counts as fp32, by the vectors that both
computed when they were added."""

from __future__ import annotations

from latent_core.models.store.layout import ModelStore
from latent_core.models.store.record import (
    FULL_PRECISION,
    HALF_PRECISION,
    InstalledModel,
    add_command,
)


def other_precision(source: str, chosen: str | None, found: str, options: str) -> str | None:
    """Why weights of precision ``found`` are not installed, with the command that installs them; None if they may be.

    The name of a file says little, so the graph decides. ``chosen``: by a person; None: any full precision, never a
    quantised one. ``source`` is the hub id with its revision, ``options`` those of the command but the precision.
    """
    is_full = found in FULL_PRECISION
    if chosen == found or (chosen is None and is_full):
        return None
    command = add_command(source if is_full else f"{source}+{found}") + options
    cause = (
        "quantised weights give other vectors and are never chosen by themselves"
        if chosen is None
        else f"the repository has none in {chosen}"
    )
    return f"the weights of {source} are {found}, whatever their file is called, and {cause}. To use them: {command}"


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
