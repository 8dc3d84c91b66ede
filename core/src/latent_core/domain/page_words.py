"""The words of a page with their boxes, as the page is shown: in ten-thousandths of its width and height."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, NamedTuple

from pydantic import Field, TypeAdapter

SCALE: Final = 10_000
MAX_WORDS: Final = 20_000
"""Of a page; further ones have no boxes."""
MAX_WORD_CHARS: Final = 200

Edge = Annotated[int, Field(ge=0, le=SCALE)]


class PageWord(NamedTuple):
    """A word; edges from the top left corner."""

    text: Annotated[str, Field(min_length=1, max_length=MAX_WORD_CHARS)]
    left: Edge
    top: Edge
    right: Edge
    bottom: Edge


PageWords: Final = TypeAdapter(Annotated[tuple[PageWord, ...], Field(max_length=MAX_WORDS)])
"""Reads them from JSON or from rows; raises ``ValidationError``."""


def placed(text: str, left: float, top: float, right: float, bottom: float) -> PageWord | None:
    """The word at edges that are fractions of the page; None if nothing of it is on the page."""
    edges = [round(min(max(edge, 0.0), 1.0) * SCALE) for edge in (left, top, right, bottom)]
    if not text or edges[0] >= edges[2] or edges[1] >= edges[3]:
        return None
    return PageWord(text[:MAX_WORD_CHARS], *edges)


def bounded(words: Iterable[PageWord | None]) -> tuple[PageWord, ...]:
    """The words that are on the page, at most ``MAX_WORDS``."""
    found: list[PageWord] = []
    for word in words:
        if word is not None:
            found.append(word)
            if len(found) == MAX_WORDS:
                break
    return tuple(found)
