"""Which page of a paged source holds an offset of its text."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from latent_workers.parse.parsed import ParsedPage


class PagePlaces:
    """Pages stand in the text one after the other, with one character between two."""

    def __init__(self, pages: Sequence[ParsedPage]) -> None:
        self._numbers = [page.number for page in pages]
        self._starts: list[int] = []
        start = 0
        for page in pages:
            self._starts.append(start)
            start += len(page.text) + 1

    def __bool__(self) -> bool:
        return bool(self._numbers)

    def at(self, offset: int) -> int:
        """The page of the character at ``offset``; what stands between two belongs to the first."""
        return self._numbers[bisect_right(self._starts, offset) - 1]
