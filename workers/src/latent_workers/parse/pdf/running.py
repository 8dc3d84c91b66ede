"""Running headers and footers: lines that repeat at the same place on many pages."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from latent_workers.parse.pdf.lines import Line

_MARGIN: Final = 0.2
"""Fraction of a page's height, at the top and at the bottom, where they can be."""
_OUTERMOST: Final = 3
"""Lines from the edge inwards that are compared."""
_SLOT: Final = 4.0
"""Places within this many points are the same."""
_FEWEST_PAGES: Final = 3
_SHARE: Final = 0.4
"""Share of pages, from the first to the last, that repeat a place: below it there is no running line."""
_SHARE_OF_ALL: Final = 0.2
_MAX_CHARS: Final = 160
_LARGER: Final = 1.15
"""Factor to the body size: a larger line is probably a heading, unless it is on most pages and has no number."""
_MAX_PAGES: Final = 0.6
_NUMBER: Final = r"(?:\d{1,4}|[ivxlc]{1,7})"
_PAGE: Final = re.compile(
    rf"^[\W_]*(?:page\s+|p\.\s*)?{_NUMBER}(?:\s*(?:/|of|von|de)\s*\d{{1,4}})?(?=\W|$)|"
    rf"(?<!\w)(?:page\s+|p\.\s*)?{_NUMBER}(?:\s*(?:/|of|von|de)\s*\d{{1,4}})?[\W_]*$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Margins:
    """The lines of a page, from which those near its top and bottom are compared; ``height`` in points."""

    lines: Sequence[Line]
    height: float
    has_tables: bool = False


@dataclass(frozen=True, slots=True)
class _Place:
    """``page`` and ``number`` (of the line on it) from 0."""

    page: int
    number: int
    line: Line
    key: str
    numbered: bool


def running(pages: Sequence[Margins], body: float) -> list[set[int]]:
    """For each page, the indexes of the lines that are not its own text. ``body`` is the body's font size.

    A place counts if, on at least three pages and two of five, its text also occurs there on other pages (except a
    page number at the start or end). A page keeps a line if it has nothing else.
    """
    found: list[set[int]] = [set() for _ in pages]
    if len(pages) < _FEWEST_PAGES:
        return found
    for slot in _slots(pages):
        repeated = _repeated(slot, body, _MAX_PAGES * len(pages))
        if _is_kept_up(sorted({place.page for place in repeated}), len(pages)):
            for place in repeated:
                found[place.page].add(place.number)
    return [
        lines if page.has_tables or len(lines) < len(page.lines) else set()
        for lines, page in zip(found, pages, strict=True)
    ]


def _is_kept_up(pages: Sequence[int], total: int) -> bool:
    """Whether there are enough pages, close enough together."""
    if len(pages) < max(_FEWEST_PAGES, _SHARE_OF_ALL * total):
        return False
    return len(pages) >= _SHARE * (pages[-1] - pages[0] + 1)


def _slots(pages: Sequence[Margins]) -> Iterator[list[_Place]]:
    """Lines at the same height, in the top and bottom margins of all pages."""
    places: dict[bool, list[tuple[float, _Place]]] = defaultdict(list)
    for page_number, page in enumerate(pages):
        for top in (True, False):
            for number, at in _outermost(page, top=top):
                line = page.lines[number]
                key = _PAGE.sub("#", " ".join(line.text.split()).casefold(), count=1)
                place = _Place(page_number, number, line, key, "#" in key)
                places[top].append((at, place))
    for found in places.values():
        yield from _near(sorted(found, key=lambda one: one[0]))


def _outermost(page: Margins, *, top: bool) -> Iterator[tuple[int, float]]:
    """The lines nearest to an edge with their distance from it, so that pages of different sizes agree."""
    distances = sorted(
        (line.box[1] if top else page.height - line.box[3], number)
        for number, line in enumerate(page.lines)
    )
    levels, last = 0, float("-inf")
    for distance, number in distances:
        levels += distance - last > _SLOT
        last = distance
        if distance > _MARGIN * page.height or levels > _OUTERMOST:
            return
        if len(page.lines[number].text) <= _MAX_CHARS:
            yield number, distance


def _near(found: Iterable[tuple[float, _Place]]) -> Iterator[list[_Place]]:
    slot: list[_Place] = []
    begins = float("-inf")
    for at, place in found:
        if at - begins > _SLOT:
            if slot:
                yield slot
            slot, begins = [], at
        slot.append(place)
    if slot:
        yield slot


def _repeated(slot: Sequence[_Place], body: float, min_pages: float) -> list[_Place]:
    pages: Counter[str] = Counter()
    for key, _ in {(place.key, place.page) for place in slot}:
        pages[key] += 1
    return [
        place
        for place in slot
        if pages[place.key] >= _FEWEST_PAGES
        and (
            place.line.size <= _LARGER * body
            or (not place.numbered and pages[place.key] >= min_pages)
        )
    ]
