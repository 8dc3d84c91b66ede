"""Fit hits into an answer: brief or full, within ``max_chars``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from latent_core.domain.hit import Hit
from latent_core.domain.query import Detail

MARK: Final = "..."


@dataclass(frozen=True, slots=True)
class BudgetFit:
    hits: list[Hit]
    truncated: bool
    """A text was shortened, or hits were moved to the next page."""


def fit(hits: Sequence[Hit], detail: Detail, max_chars: int | None) -> BudgetFit:
    """The first of ``hits`` that fit. At least one is returned, without its text if necessary."""
    shown = [_brief(hit) if detail == "brief" else hit for hit in hits]
    if max_chars is None:
        return BudgetFit(shown, truncated=False)
    kept: list[Hit] = []
    left = max_chars
    for hit in shown:
        size = _size(hit)
        if size <= left:
            kept.append(hit)
        elif (short := _brief(hit)) is not hit and _size(short) <= left:
            kept.append(_shortened(hit, left - _size(short)))
            return BudgetFit(kept, truncated=True)
        else:
            return BudgetFit(kept or [short], truncated=True)
        left -= size
    return BudgetFit(kept, truncated=False)


def _brief(hit: Hit) -> Hit:
    """Without the text: snippet and place show whether the hit is worth reading."""
    return hit.model_copy(update={"text": None, "before": [], "after": []})


def _size(hit: Hit) -> int:
    """Characters that the reader receives."""
    around = sum(len(chunk.text) for chunk in (*hit.before, *hit.after))
    return len(hit.text or "") + len(hit.rendered_snippet) + len(hit.title) + around


def _shortened(hit: Hit, remaining: int) -> Hit:
    """With as much of its text as fits; neighbouring chunks are dropped first."""
    text = hit.text or ""
    if len(text) > remaining:
        cut = text.rfind(" ", 0, max(0, remaining - len(MARK)))
        text = text[: max(0, cut)] + MARK if remaining > len(MARK) else ""
    return hit.model_copy(update={"text": text or None, "before": [], "after": []})
