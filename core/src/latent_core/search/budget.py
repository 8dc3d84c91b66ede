"""How much of the hits an answer holds: brief or full, and at most so many characters."""

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
    """A text was shortened, or hits were left out; these go with the next page."""


def fit(hits: Sequence[Hit], detail: Detail, max_chars: int | None) -> BudgetFit:
    """The first of ``hits`` that fit; at least one, if need be without its whole text."""
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
    """Without the text: the snippet and the place tell whether it is worth reading."""
    return hit.model_copy(update={"text": None, "before": [], "after": []})


def _size(hit: Hit) -> int:
    """Characters that are read of it."""
    around = sum(len(chunk.text) for chunk in (*hit.before, *hit.after))
    return len(hit.text or "") + len(hit.rendered_snippet) + len(hit.title) + around


def _shortened(hit: Hit, remaining: int) -> Hit:
    """With as much of its text as there is room for; what stands around it goes first."""
    text = hit.text or ""
    if len(text) > remaining:
        cut = text.rfind(" ", 0, max(0, remaining - len(MARK)))
        text = text[: max(0, cut)] + MARK if remaining > len(MARK) else ""
    return hit.model_copy(update={"text": text or None, "before": [], "after": []})
