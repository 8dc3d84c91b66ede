"""Lines of a PDF page with their place and font size, in the page's reading direction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from latent_workers.parse.pdf import mupdf
from latent_workers.parse.text.decode import clean

Box = tuple[float, float, float, float]
"""Left, top, right, bottom in points, in reading direction."""

_BOLD: Final = 16
_BOLD_NAMES: Final = ("bold", "black", "heavy", "demi")
_QUARTERS: Final = ((1, 0), (0, -1), (-1, 0), (0, 1))
_UPRIGHT: Final = 0
_SAME_HEIGHT: Final = 0.5
"""Fraction of the smaller line's height: closer middles are on one baseline."""
_FAR: Final = 1.8
"""Gap, in font sizes, from which two parts of a row are cells instead of words."""
_MARKER_CHARS: Final = 4
CELL_BREAK: Final = "\t"


@dataclass(frozen=True, slots=True)
class PdfWord:
    """A word, with the numbers of its block and line in MuPDF."""

    text: str
    box: Box
    line: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Line:
    """The text on one baseline of one block."""

    text: str
    box: Box
    size: float
    """Its font size in points."""
    bold: bool
    number: tuple[int, int]
    """Of its block, and of its (first) line in it."""

    @property
    def middle(self) -> float:
        return (self.box[1] + self.box[3]) / 2

    @property
    def height(self) -> float:
        return self.box[3] - self.box[1]


@dataclass(frozen=True, slots=True)
class PageFrame:
    """The rotation of a page with which most of its text runs to the right, and its size in that rotation."""

    rotation: int
    """Quarters of a circle, counter-clockwise."""
    width: float
    height: float

    def box(self, box: Sequence[float]) -> Box:
        """A box of the page, rotated into this frame."""
        x0, y0, x1, y1 = box
        if self.rotation == 1:
            return self.width - y1, x0, self.width - y0, x1
        if self.rotation == 2:
            return self.width - x1, self.height - y1, self.width - x0, self.height - y0
        if self.rotation == 3:
            return y0, self.height - x1, y1, self.height - x0
        return x0, y0, x1, y1


@dataclass(frozen=True, slots=True)
class PageText:
    """The text of a page: lines in the main direction, other lines, and all words on demand."""

    frame: PageFrame
    lines: tuple[Line, ...]
    askew: tuple[Line, ...]
    replaced: int
    source: Any
    """MuPDF's text page."""

    def words(self) -> list[PdfWord]:
        found = []
        for x0, y0, x1, y1, text, block, line, _ in self.source.extractWORDS():
            found.append(PdfWord(clean(text)[0], self.frame.box((x0, y0, x1, y1)), (block, line)))
        return found


def read(page: Any) -> PageText:
    """The text of a page; raises MuPDF's errors."""
    pymupdf = mupdf.load()
    # Ligatures are taken apart: words should be found as they are typed.
    flags = pymupdf.TEXT_PRESERVE_WHITESPACE | pymupdf.TEXT_MEDIABOX_CLIP
    source = page.get_textpage(flags=flags)
    whole = {block[5]: block for block in source.extractBLOCKS()}
    found: list[tuple[int, Line]] = []
    replaced = 0
    for block in source.extractDICT()["blocks"]:
        lines, bad = _lines(block)
        replaced += bad
        found += _completed(lines, whole.get(block["number"]))
    frame = _frame(page, found)
    turned = [(quarter, replace(line, box=frame.box(line.box))) for quarter, line in found]
    return PageText(
        frame,
        tuple(line for quarter, line in turned if quarter == frame.rotation),
        tuple(line for quarter, line in turned if quarter != frame.rotation),
        replaced,
        source,
    )


def _lines(block: dict[str, Any]) -> tuple[list[tuple[int, Line]], int]:
    """The lines of a block with their rotations, and the number of replaced characters."""
    found: list[tuple[int, Line]] = []
    replaced = 0
    for number, raw in enumerate(block.get("lines", ())):
        text, bad = clean("".join(span["text"] for span in raw["spans"]))
        text = " ".join(text.split())
        replaced += bad
        if text:
            found.append((_quarter(raw["dir"]), _line(raw, text, (block["number"], number))))
    return found, replaced


def _completed(
    lines: list[tuple[int, Line]], block: tuple[Any, ...] | None
) -> list[tuple[int, Line]]:
    """``lines``, or all text of the block: the ActualText of a picture has no line."""
    if block is None:
        return lines
    block_text = clean(block[4])[0]
    if _letters(block_text) <= sum(_letters(line.text) for _, line in lines):
        return lines
    texts = [text for line in block_text.splitlines() if (text := " ".join(line.split()))]
    x0, y0, x1, y1 = block[:4]
    height = (y1 - y0) / len(texts)
    sizes = [line.size for _, line in lines] or [height]
    return [
        (
            _UPRIGHT,
            Line(
                text,
                (x0, y0 + number * height, x1, y0 + (number + 1) * height),
                sizes[0],
                False,
                (block[5], number),
            ),
        )
        for number, text in enumerate(texts)
    ]


def _letters(text: str) -> int:
    return sum(map(str.isalnum, text))


def _line(raw: dict[str, Any], text: str, number: tuple[int, int]) -> Line:
    sizes: Counter[float] = Counter()
    letters = bold = 0
    for span in raw["spans"]:
        count = len(span["text"].strip())
        sizes[round(span["size"] * 2) / 2] += count
        letters += count
        if span["flags"] & _BOLD or any(name in span["font"].lower() for name in _BOLD_NAMES):
            bold += count
    size = sizes.most_common(1)[0][0]
    return Line(text, tuple(raw["bbox"]), size, bold * 5 > letters * 4, number)


def _quarter(direction: tuple[float, float]) -> int:
    """The nearest quarter turn; None for slanted lines."""
    for quarter, (x, y) in enumerate(_QUARTERS):
        if abs(direction[0] - x) < 0.1 and abs(direction[1] - y) < 0.1:
            return quarter
    return -1


def _frame(page: Any, found: Sequence[tuple[int, Line]]) -> PageFrame:
    chars: Counter[int] = Counter()
    for quarter, line in found:
        chars[quarter] += len(line.text)
    del chars[-1]
    rotation = chars.most_common(1)[0][0] if chars else _UPRIGHT
    box = page.cropbox
    sides = box.width, box.height
    return PageFrame(rotation, *(sides if rotation % 2 == 0 else sides[::-1]))


def on_one_baseline(one: Line, other: Line) -> bool:
    near = _SAME_HEIGHT * min(one.height, other.height)
    return abs(one.middle - other.middle) < near and abs(one.size - other.size) <= 0.5 * max(
        one.size, other.size
    )


def rows(pieces: Iterable[Line]) -> Iterator[Line]:
    """Neighbouring pieces on one baseline, joined into one line; a tab separates cells."""
    last: Line | None = None
    for piece in pieces:
        if last is not None and on_one_baseline(last, piece) and _apart(last, piece):
            last = _joined(last, piece)
            continue
        if last is not None:
            yield last
        last = piece
    if last is not None:
        yield last


def _apart(one: Line, other: Line) -> bool:
    """Whether they are beside each other without much overlap."""
    slack = 0.3 * min(one.size, other.size)
    return other.box[0] >= one.box[2] - slack or other.box[2] <= one.box[0] + slack


def _joined(one: Line, other: Line) -> Line:
    gap = max(other.box[0] - one.box[2], one.box[0] - other.box[2])
    wide = gap > _FAR * max(one.size, other.size) and len(one.text) > _MARKER_CHARS
    first, second = (one, other) if other.box[0] >= one.box[0] or is_rtl(one.text) else (other, one)
    longer = max(one, other, key=lambda line: len(line.text))
    return Line(
        text=f"{first.text}{CELL_BREAK if wide else ' '}{second.text}",
        box=around([one.box, other.box]),
        size=longer.size,
        bold=one.bold and other.bold,
        number=one.number,
    )


def around(boxes: Iterable[Box]) -> Box:
    """The smallest box that holds all of ``boxes``."""
    left, top, right, bottom = zip(*boxes, strict=True)
    return min(left), min(top), max(right), max(bottom)


def is_rtl(text: str) -> bool:
    """Whether most letters are Hebrew or Arabic."""
    strong = [char for char in text if char.isalpha()]
    marked = sum(
        1 for char in strong if "\u0590" <= char <= "\u08ff" or "\ufb1d" <= char <= "\ufefc"
    )
    return marked * 2 > len(strong)
