"""What the embedder reads above a chunk of code or data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from latent_workers.chunk.counting import WordCounter

SEPARATOR: Final = " > "
_SHARE: Final = 4
"""Headings take at most one part in so many of what the embedder reads."""


def fitting(path: Sequence[str], budget: int, counter: WordCounter) -> tuple[tuple[str, ...], int]:
    """The innermost headings of ``path`` that fit their share of the budget, and what they cost."""
    kept: list[str] = []
    cost = 0
    for heading, tokens in zip(path[::-1], counter.count(path[::-1]), strict=True):
        # One more for the separator.
        if cost + tokens + 1 > budget // _SHARE:
            break
        kept.insert(0, heading)
        cost += tokens + 1
    return tuple(kept), cost


def under(path: Sequence[str], text: str, budget: int, counter: WordCounter) -> str:
    """``text`` with the headings that fit above it."""
    headings = SEPARATOR.join(fitting(path, budget, counter)[0])
    return f"{headings}\n\n{text}" if headings else text
