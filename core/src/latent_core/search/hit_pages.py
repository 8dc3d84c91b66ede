"""Pages of a hit: on which of the pages that its chunk spans a place in the chunk stands."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from latent_core.db.documents.chunks import HitRow, PageFiles
from latent_core.search.snippet import Snippet

_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_PROBE: Final = 64
"""Characters of a page's beginning that are searched for; the rest of it is then compared."""


@dataclass(frozen=True, slots=True)
class HitPages:
    """The pages of a chunk, each with the offset in the chunk's text at which it begins."""

    starts: tuple[tuple[int, PageFiles], ...]

    @classmethod
    def of(cls, row: HitRow) -> HitPages:
        """Computed from the page texts, for chunks on several pages. A page whose beginning is not in the chunk gets no
        part of it: a blank one, or one that only shares a long line with the chunk."""
        if not row.pages:
            return cls(())
        starts = [(0, row.pages[0])]
        at = int(row.meta.get("repeated_chars", 0))
        for page in row.pages[1:]:
            found = _start(row, page, at)
            if found is not None:
                at = found
                starts.append((at, page))
            elif page.opening and not row.pages[0].opening:
                # The line of the chunk begins on an earlier page, the chunk itself on this one.
                starts = [(0, page)]
        return cls(tuple(starts))

    def at(self, offset: int) -> PageFiles | None:
        """The page of the character at ``offset``."""
        return next((page for start, page in reversed(self.starts) if start <= offset), None)

    def best(self, snippet: Snippet) -> PageFiles | None:
        """The page with the most of what ``snippet`` was chosen for, each term once; the earlier of two equal ones."""
        words: defaultdict[int, dict[str, float]] = defaultdict(dict)
        pages: dict[int, PageFiles] = {}
        for offset, word, weight in snippet.evidence:
            page = self.at(offset)
            if page is not None:
                words[page.page][word] = weight
                pages[page.page] = page
        if not words:
            return self.at(snippet.start)
        return pages[max(words, key=lambda number: (sum(words[number].values()), -number))]


def _start(row: HitRow, page: PageFiles, at: int) -> int | None:
    """Where ``page`` begins in the chunk, not before ``at``."""
    head = page.head or ""
    if page.line_start is None or row.line_start is None:
        return _place_of(head, row.text, at) if head else None
    start, end = _line(row, page.line_start)
    # A long line continues on the next page: that page then begins in the middle of it.
    first = _LINE_END.split(head, maxsplit=1)[0]
    if not first:
        return max(start, at)
    return _place_of(first, row.text[:end], max(start, at))


def _line(row: HitRow, number: int) -> tuple[int, int]:
    """Start and end of a source line in the text of the chunk."""
    start = int(row.meta.get("repeated_chars", 0))
    for _ in range(number - (row.line_start or 1)):
        line_end = _LINE_END.search(row.text, start)
        if line_end is None:
            return len(row.text), len(row.text)
        start = line_end.end()
    following = _LINE_END.search(row.text, start)
    return start, following.start() if following else len(row.text)


def _place_of(head: str, text: str, at: int) -> int | None:
    """Where ``head`` stands in ``text``; the text may end before all of it."""
    probe = head[:_PROBE]
    found = text.find(probe, at)
    while found >= 0:
        if head.startswith(text[found : found + len(head)]):
            return found
        found = text.find(probe, found + 1)
    last = range(max(at, len(text) - len(probe) + 1), len(text))
    return next((place for place in last if head.startswith(text[place:])), None)
