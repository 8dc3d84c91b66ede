"""Lays out elements on pages with MuPDF, draws page by page, and reads the places from marks."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from latent_core.domain.errors import Issue, IssueCode
from latent_workers.parse.pdf import mupdf
from latent_workers.parse.text.lines import Lines
from latent_workers.render import raster
from latent_workers.render.elements import Element
from latent_workers.render.page import PageInfo, RenderEnd, RenderOptions

PAGE: Final = (595.0, 842.0)
"""A4 in points."""
MARGIN: Final = 36.0
FOOT: Final = 16.0
"""Height of the footer, which names the source."""

# No element has a margin above, and no padding as high as a line: the first thing on a page then
# stands at its top, unless something goes on from the page before.
CSS: Final = """
body { margin: 0; font-family: sans-serif; font-size: 10.5px; line-height: 1.3; color: #000; }
p, ul, ol, blockquote, table, pre, hr { margin: 0 0 7px 0; }
h1 { font-size: 19px; margin: 0 0 8px 0; }
h2 { font-size: 15.5px; margin: 0 0 6px 0; padding-top: 6px; }
h3 { font-size: 13px; margin: 0 0 5px 0; padding-top: 4px; }
h4, h5, h6 { font-size: 11px; margin: 0 0 4px 0; padding-top: 3px; }
ul, ol { padding-left: 20px; }
li { margin: 0 0 2px 0; }
blockquote { margin-left: 6px; padding-left: 10px; border-left: 2px solid #666; }
table { border-collapse: collapse; font-size: 9.5px; line-height: 1.2; }
table.small { font-size: 7px; }
th, td { border: 1px solid #333; padding: 2px 4px; vertical-align: top; }
th { border-bottom: 2px solid #000; font-weight: bold; text-align: left; }
code { font-family: monospace; font-weight: bold; font-size: 0.92em; }
pre { font-family: monospace; white-space: pre-wrap; line-height: 1.22; font-weight: bold; }
pre.file { font-size: 8px; margin: 0; }
pre.fence { font-size: 8px; margin: 0; padding: 1px 4px; background-color: #f3f3f3; }
pre.last { margin-bottom: 7px; }
div.line { white-space: pre-wrap; }
div.foot { font-size: 7.5px; color: #444; }
.picture { font-style: italic; }
.link { text-decoration: underline; }
.n { color: #666; font-weight: normal; }
.k { color: #00008b; }
.s { color: #005a00; }
.c { color: #555; font-style: italic; }
.m { color: #8b0000; }
.f { color: #4b0082; }
.d { color: #7a4a00; }
.b { color: #004a5a; }
"""


Drawn = tuple[PageInfo, bytes]
Span = tuple[int, int]

_RIGHT: Final = PAGE[0] - MARGIN
_BOTTOM: Final = PAGE[1] - MARGIN - FOOT
_ENDLESS: Final = 1e6
_TOLERANCE: Final = 1.0
_MIN_LINE: Final = 9.0
"""Points of a line: an element that starts lower on a page has something above it."""
_MIN_SPACE: Final = 24.0
"""Points at the bottom of a page in which no element starts."""


@dataclass(slots=True)
class _Sheet:
    """A page in progress: its pixels, the position, and the places in the source that it shows."""

    pixmap: Any
    y: float = MARGIN
    shown: list[Span] = field(default_factory=list)


class StoryLayout:
    """Lays out one document."""

    def __init__(self, text: str, name: str, options: RenderOptions) -> None:
        self._pymupdf = mupdf.load()
        self._text = text
        self._lines = Lines(text)
        self._name = name
        self._options = options
        self._scale = raster.scale_for(*PAGE, options.dpi)

    def pages(self, elements: Iterable[Element]) -> Iterator[Drawn | RenderEnd]:
        """Each page when it is full, then the skipped elements."""
        number = 0
        for sheet, is_last in _marked(self._sheets(elements)):
            if number == self._options.max_pages:
                yield RenderEnd(pages=number, warnings=[_cut_off(number)])
                return
            number += 1
            info = self._info(number, sheet, is_last=is_last)
            self._foot(sheet, info)
            yield info, raster.encoded(sheet.pixmap, self._options, text_only=True)
        yield RenderEnd(pages=number, warnings=[])

    def _sheets(self, elements: Iterable[Element]) -> Iterator[_Sheet]:
        sheet = self._fresh()
        for element, ends in _with_ends(self._fitting(elements), len(self._text)):
            story = self._story(element.html)
            spans = {
                mark.id: (mark.offset, end) for mark, end in zip(element.marks, ends, strict=True)
            }
            current: Span | None = None
            more = True
            while more:
                # MuPDF takes an empty rectangle for an endless one.
                if _BOTTOM - sheet.y < _MIN_SPACE:
                    yield sheet
                    sheet = self._fresh()
                more, filled = story.place(self._pymupdf.Rect(MARGIN, sheet.y, _RIGHT, _BOTTOM))
                nothing = filled[3] <= sheet.y + _TOLERANCE
                if more and nothing and sheet.y > MARGIN:
                    sheet.y = _BOTTOM
                    continue
                current = self._show(story, sheet, spans, current)
                sheet.y = _BOTTOM if more else min(filled[3], _BOTTOM)
                if nothing:
                    break  # what cannot be placed on an empty page never will be
        if sheet.shown or sheet.y > MARGIN:
            yield sheet

    def _show(
        self, story: Any, sheet: _Sheet, spans: dict[str, Span], current: Span | None
    ) -> Span | None:
        """Draw the placed elements and store their places; ``current`` started on an earlier page."""
        # A paragraph is reported again with each piece of its text that has no mark of its own.
        begun = current[0] if current else 0
        opened = [
            (top, spans[name])
            for name, top, _ in self._opened(story)
            if name in spans and spans[name][0] >= begun
        ]
        top = opened[0][0] if opened else _ENDLESS
        if current is not None and top > sheet.y + _MIN_LINE:
            sheet.shown.append(current)
        sheet.shown += [span for _, span in opened]
        self._draw(story, sheet.pixmap)
        return max((span for _, span in opened), default=current)

    def _fitting(self, elements: Iterable[Element]) -> Iterator[Element]:
        """Elements that fit no page are replaced by their alternatives."""
        for element in elements:
            if element.smaller is None or self._fits(element.html, element):
                yield element
            elif self._fits(element.smaller, element):
                yield Element(element.smaller, element.marks)
            else:
                yield from element.fallback

    def _fits(self, content: str, element: Element) -> bool:
        story = self._story(content)
        _, filled = story.place(self._pymupdf.Rect(MARGIN, 0, _RIGHT, _ENDLESS))
        names = {mark.id for mark in element.marks}
        tallest = max((y1 - y0 for name, y0, y1 in self._opened(story) if name in names), default=0)
        return bool(filled[2] <= _RIGHT + _TOLERANCE and tallest <= _BOTTOM - MARGIN)

    def _opened(self, story: Any) -> list[tuple[str, float, float]]:
        """Id, top and bottom of the elements that start in the last placement."""
        found: list[tuple[str, float, float]] = []

        def note(position: Any) -> None:
            if position.open_close & 1 and position.id:
                found.append((position.id, position.rect[1], position.rect[3]))

        story.element_positions(note)
        return found

    def _story(self, content: str) -> Any:
        return self._pymupdf.Story(content, user_css=CSS)

    def _fresh(self) -> _Sheet:
        size = (round(side * self._scale) for side in PAGE)
        return _Sheet(raster.blank(*size))

    def _draw(self, story: Any, pixmap: Any) -> None:
        core = self._pymupdf.mupdf
        scaled = core.FzMatrix(self._scale, 0, 0, self._scale, 0, 0)
        device = core.fz_new_draw_device(scaled, pixmap)
        core.fz_draw_story(story.this, device, core.FzMatrix())
        core.fz_close_device(device)

    def _info(self, number: int, sheet: _Sheet, *, is_last: bool) -> PageInfo:
        start = min((start for start, _ in sheet.shown), default=0)
        end = max((end for _, end in sheet.shown), default=0)
        text = self._text[start:end].rstrip()
        return PageInfo(
            number=number,
            total=number if is_last else self._expected(number, end),
            width=sheet.pixmap.w(),
            height=sheet.pixmap.h(),
            line_start=self._lines.at(start),
            line_end=self._lines.at(max(start, start + len(text) - 1)),
            text=text,
        )

    def _expected(self, number: int, end: int) -> int:
        """Pages by the share of the text that the first ``number`` of them show; more follow."""
        pages = math.ceil(number * len(self._text) / end) if end else number + 1
        return min(max(number + 1, pages), max(number, self._options.max_pages))

    def _foot(self, sheet: _Sheet, info: PageInfo) -> None:
        words = f"{self._name} — lines {info.line_start} to {info.line_end}, page {info.number}"
        story = self._story(f'<div class="foot">{html.escape(words, quote=False)}</div>')
        story.place(self._pymupdf.Rect(MARGIN, _BOTTOM + 4, _RIGHT, _BOTTOM + FOOT))
        self._draw(story, sheet.pixmap)


def _marked(sheets: Iterable[_Sheet]) -> Iterator[tuple[_Sheet, bool]]:
    """Each sheet, and whether it is the last."""
    waiting: _Sheet | None = None
    for sheet in sheets:
        if waiting is not None:
            yield waiting, False
        waiting = sheet
    if waiting is not None:
        yield waiting, True


def _with_ends(
    elements: Iterable[Element], length: int
) -> Iterator[tuple[Element, tuple[int, ...]]]:
    """Each element with the end of each of its marks in the source: the start of the next mark."""
    waiting: list[Element] = []
    for element in elements:
        if element.marks and waiting:
            yield from _ended(waiting, element.marks[0].offset)
            waiting = []
        waiting.append(element)
    yield from _ended(waiting, length)


def _ended(waiting: list[Element], end: int) -> Iterator[tuple[Element, tuple[int, ...]]]:
    for element in waiting:
        offsets = [mark.offset for mark in element.marks]
        yield element, (*offsets[1:], end) if offsets else ()


def _cut_off(limit: int) -> Issue:
    return Issue(
        code=IssueCode.INGEST_FAIL,
        message=f"Only the first {limit} pages have images (pdf.max_pages).",
        details={"pages_rendered": limit},
    )
