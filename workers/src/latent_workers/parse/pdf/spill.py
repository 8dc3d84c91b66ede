"""Paragraphs that continue in the next column or on the next page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from latent_core.domain.chunk import BlockType
from latent_workers.parse.pdf.lines import CELL_BREAK, Line
from latent_workers.parse.pdf.parts import PdfPart
from latent_workers.parse.pdf.text import (
    Vocabulary,
    ends_sentence,
    hyphenated,
    is_entry,
    is_full,
    is_item,
    join,
)

_SAME_SIZE: Final = 0.6
_MIN_CHARS: Final = 30
"""Minimum length of a line of prose; labels of drawings are shorter."""
_SMALLER: Final = 0.93
"""Relative font size of footnotes below the paragraph and of captions above its rest."""
_MAX_BETWEEN: Final = 8


def within_page(parts: Sequence[PdfPart], vocabulary: Vocabulary) -> list[PdfPart]:
    """The parts of a page, with parts that continue in the next one joined."""
    joined: list[PdfPart] = []
    for part in parts:
        begun = _begun(joined, part)
        if begun is None:
            joined.append(part)
        else:
            joined[begun] = _one(joined[begun], part, vocabulary)
    return joined


def _begun(parts: Sequence[PdfPart], rest: PdfPart) -> int | None:
    """The part that continues in ``rest``: the last one, or the one above footnotes."""
    for back in range(1, min(_MAX_BETWEEN, len(parts)) + 1):
        place = len(parts) - back
        if _goes_on(parts[place], rest):
            return place
        if not _is_text(parts[place]) or _size(parts[place]) >= _SMALLER * _size(rest):
            return None
    return None


def over_pages(pages: Sequence[list[PdfPart]], vocabulary: Vocabulary) -> set[int]:
    """Indexes (from 0) of the pages whose last part continues as the first part of the next page.

    Moves these parts to the end and to the start of their pages: footnotes before, captions after. A word that the
    page break splits moves to where it starts.
    """
    spilled: set[int] = set()
    for number in range(len(pages) - 1):
        here, there = pages[number], pages[number + 1]
        places = _ends(here, alone=number - 1 in spilled)
        pairs = ((last, _first(here[last], there)) for last in places)
        last, first = next((pair for pair in pairs if pair[1] is not None), (0, None))
        if first is None:
            continue
        one, other = here.pop(last), there.pop(first)
        one, rest = _whole_words(one, other, vocabulary)
        here.append(one)
        if rest.text:
            there.insert(0, rest)
            spilled.add(number)
    return spilled


def _ends(parts: Sequence[PdfPart], *, alone: bool) -> Iterator[int]:
    """The parts that may continue: the last one, and those above footnotes.

    ``alone``: the continuation of the previous page must stay first.
    """
    for place in range(len(parts) - 1, max(-1, len(parts) - 1 - _MAX_BETWEEN), -1):
        below = parts[place + 1 :]
        if not _is_text(parts[place]) or (alone and place == 0 and below):
            return
        if not parts[place].aside and all(
            _size(part) < _SMALLER * _size(parts[place]) for part in below
        ):
            yield place


def _first(last: PdfPart, parts: Sequence[PdfPart]) -> int | None:
    for place, part in enumerate(parts[:_MAX_BETWEEN]):
        if not _is_text(part):
            return None
        if _size(part) >= _SMALLER * _size(last):
            return place if _goes_on(last, part, over=True) else None
    return None


def _is_text(part: PdfPart) -> bool:
    return part.kind in (BlockType.PARAGRAPH, BlockType.LIST) and bool(part.lines)


def _size(part: PdfPart) -> float:
    """The font size; sideways text counts as small print."""
    if part.aside or not part.lines:
        return 0.0
    return max(part.lines, key=lambda line: len(line.text)).size


def _goes_on(one: PdfPart, other: PdfPart, *, over: bool = False) -> bool:
    """Whether ``other`` continues ``one``. ``over``: on the next page."""
    if not _is_text(one) or not _is_text(other) or one.aside or other.aside:
        return False
    if ends_sentence(one.text) or is_item(other.text):
        return False
    line, following = one.lines[-1], other.lines[0]
    if CELL_BREAK in line.text or CELL_BREAK in following.text or not _alike(line, following):
        return False
    if is_entry(line.text) or is_entry(following.text):
        return False
    if len(line.text) < _MIN_CHARS and len(one.lines) == 1:
        return False
    if hyphenated(one.text, other.text) or other.text[:1].islower():
        return True
    # A name or a number may begin the rest too, where there was no room left for it.
    moved = over or following.middle < line.middle
    return (
        moved
        and len(one.lines) > 1
        and len(following.text) >= _MIN_CHARS
        and one.text[-1].isalnum()
        and other.text[0].isalpha()
        and _was_full(one, following)
    )


def _alike(line: Line, following: Line) -> bool:
    return abs(line.size - following.size) <= _SAME_SIZE and line.bold == following.bold


def _was_full(part: PdfPart, following: Line) -> bool:
    left = min(line.box[0] for line in part.lines)
    right = max(line.box[2] for line in part.lines)
    return is_full(part.lines[-1], following, left, right)


def _one(one: PdfPart, other: PdfPart, vocabulary: Vocabulary) -> PdfPart:
    text = join(one.text, other.text, vocabulary)
    return replace(one, text=text, lines=(*one.lines, *other.lines))


def _whole_words(one: PdfPart, other: PdfPart, vocabulary: Vocabulary) -> tuple[PdfPart, PdfPart]:
    """The two parts, with a split word in the first."""
    if not hyphenated(one.text, other.text):
        return one, other
    head, space, rest = other.text.partition(" ")
    if "\n" in head:
        head, space, rest = other.text.partition("\n")
    whole = join(one.text, head, vocabulary)
    return replace(one, text=whole), replace(other, text=rest.lstrip() if space else "")
