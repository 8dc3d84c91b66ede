"""Structured data as a tree of spans, and the tree as blocks that are small enough for any budget.

A block is a subtree of at most ``grain`` characters, a run of small siblings (below the key path of their parent),
or the text before the first child of a larger one: its heading. Together the blocks contain every line that is not
blank, including separators and comments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from latent_core.domain.chunk import BlockType
from latent_workers.parse.parsed import TextBlock
from latent_workers.parse.text.decode import clean
from latent_workers.parse.text.lines import Lines

MAX_DEPTH: Final = 32
"""Maximum depth; deeper values stay in one piece."""
GRAIN: Final = 200
"""Characters of a block that is not split further."""
_MAX_BLOCKS: Final = 20_000
_FEW: Final = 64
"""Up to this many children are blocks, however small."""
_TINY: Final = 8
"""But not below this fraction of the grain."""
_MAX_SEGMENT_CHARS: Final = 120
_PLAIN: Final = re.compile(r"[^\s.\"'\[\]\\\x00-\x1f\x7f]+")
_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_BLANK_LINES: Final = re.compile(r"(?:[^\S\r\n]*(?:\r\n|\n|\r))*")

Path = tuple[str, ...]
Tile = tuple[BlockType, Path, int, int]


@dataclass(slots=True)
class Node:
    """A value with its key: ``start`` to ``end`` of the text. ``key`` is a name, or the index in a list."""

    key: str | int
    start: int
    end: int
    children: Sequence[Node] = ()
    """Empty for a scalar, and for values that are too small or too deep to split."""
    nested: bool = False
    """A mapping or a list."""
    several: bool = False
    """Neighbours that are too small for separate nodes; ``key`` is that of the first."""


class MalformedFile(Exception):
    """The file does not have the declared format; ``offset`` is the place of the error."""

    def __init__(self, problem: str, offset: int | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.offset = offset


def append(children: list[Node], node: Node, grain: int, *, top: bool) -> None:
    """Add ``node`` to its siblings. Tiny neighbours become one node, or a list of numbers would use more memory
    than its file. ``top`` marks the values of a document, whose sections stay separate."""
    if children and node.end - children[-1].start <= grain // 2:
        last = children[-1]
        apart = top and len(children) <= _FEW
        if not any(is_apart(one, one.end - one.start, grain, apart) for one in (last, node)):
            last.end, last.several = node.end, True
            last.nested, last.children = False, ()
            return
    children.append(node)


def is_apart(node: Node, size: int, grain: int, top: bool) -> bool:
    """Whether a node of up to ``grain`` characters is a separate block among few siblings."""
    return node.nested and (top or size * _TINY > grain)


def segment(key: str | int) -> str:
    """A key in its key path: quoted as in JSON if necessary."""
    if isinstance(key, int):
        return f"[{key}]"
    name = clean(key)[0]
    if len(name) > _MAX_SEGMENT_CHARS:
        name = name[: _MAX_SEGMENT_CHARS - 1] + "…"
    return name if _PLAIN.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def key_path(path: Sequence[str]) -> str | None:
    """``services.api.ports[0]`` from its segments; ``None`` for the whole document."""
    return (
        "".join(path[:1])
        + "".join(part if part.startswith("[") else f".{part}" for part in path[1:])
        or None
    )


def grain_of(text: str) -> int:
    """Larger files are split into larger blocks, so that their number is bounded."""
    return max(GRAIN, len(text) // _MAX_BLOCKS)


def blocks(text: str, documents: Sequence[Node]) -> Iterator[TextBlock]:
    """The blocks of a file with one or more documents.

    ``heading_path`` contains the segments of the key path, below ``document 2`` if there are several documents.
    """
    lines = Lines(text)
    tiler = _Tiler(text, grain_of(text))
    several = len(documents) > 1
    for kind, path, start, end in tiler.stream(documents):
        filled = _filled(text, start, end)
        if filled is None:
            continue
        first, last = filled
        keys = path[1:] if several else path
        yield TextBlock(
            kind=kind,
            text=text[first:last],
            offset_start=first,
            offset_end=last,
            line_start=lines.at(first),
            line_end=lines.at(last - 1),
            heading_path=path,
            key_path=key_path(keys),
            parent_section=key_path(keys[:-1]),
        )


def _filled(text: str, start: int, end: int) -> tuple[int, int] | None:
    """The span without blank lines around it, but with its indentation."""
    piece = text[start:end].rstrip()
    if not piece:
        return None
    blank = _BLANK_LINES.match(piece)
    return start + (blank.end() if blank else 0), start + len(piece)


class _Tiler:
    """Splits ``text`` into tiles without gaps."""

    def __init__(self, text: str, grain: int) -> None:
        self._text = text
        self._grain = grain
        self._above = 0
        """Segments of the path above the top of a document."""

    def stream(self, documents: Sequence[Node]) -> Iterator[Tile]:
        self._above = int(len(documents) > 1)
        start = 0
        stops = self._stops(documents, start, len(self._text))
        for number, (document, stop) in enumerate(zip(documents, stops, strict=True), start=1):
            path = (f"document {number}",) if self._above else ()
            yield from self._parted(document, path, start, stop)
            start = stop

    def _tiles(self, node: Node, path: Path, start: int, end: int) -> Iterator[Tile]:
        """``start`` to ``end``: the node with the text between it and its neighbours."""
        if end - start <= self._grain:
            yield BlockType.CODE, path, start, end
        else:
            yield from self._parted(node, path, start, end)

    def _parted(self, node: Node, path: Path, start: int, end: int) -> Iterator[Tile]:
        if not node.children:
            yield BlockType.CODE, path, start, end
            return
        begin = self._below_heading(node, start)
        if begin > start:
            yield BlockType.HEADING, path, start, begin
        close = max(begin, self._between(node.children[-1].end, end))
        if end - close <= self._grain:
            close = end  # brackets and a remark below belong to the last child
        yield from self._children(node.children, path, begin, close)
        if close < end:
            yield BlockType.CODE, path, close, end

    def _children(
        self, children: Sequence[Node], path: Path, start: int, end: int
    ) -> Iterator[Tile]:
        """Larger children one by one, small ones joined with their neighbours."""
        run: list[Node] = []
        begin = start
        for child, stop in zip(children, self._stops(children, start, end), strict=True):
            size = stop - start
            if not self._is_small(child, size, children, path):
                yield from self._run(run, path, begin, start)
                yield from self._tiles(child, (*path, segment(child.key)), start, stop)
                run, begin = [], stop
            elif run and stop - begin > self._grain:
                yield from self._run(run, path, begin, start)
                run, begin = [child], start
            else:
                run.append(child)
            start = stop
        yield from self._run(run, path, begin, start)

    def _stops(self, nodes: Sequence[Node], start: int, end: int) -> Iterator[int]:
        for one, other in pairwise(nodes):
            start = max(start, self._between(one.end, other.start))
            yield start
        yield end

    def _run(self, run: Sequence[Node], path: Path, start: int, end: int) -> Iterator[Tile]:
        if run:
            single = len(run) == 1 and not run[0].several
            own = (*path, segment(run[0].key)) if single else path
            yield BlockType.CODE, own, start, end

    def _is_small(self, child: Node, size: int, siblings: Sequence[Node], path: Path) -> bool:
        if size > self._grain:
            return False
        top = len(path) == self._above
        return len(siblings) > _FEW or not is_apart(child, size, self._grain, top)

    def _between(self, end: int, start: int) -> int:
        """Where the text between two neighbours is divided: at the end of the first one's line."""
        while end > 0 and self._text[end - 1].isspace():
            end -= 1
        line_end = _LINE_END.search(self._text, end, max(end, start))
        return line_end.end() if line_end else max(end, start)

    def _below_heading(self, node: Node, start: int) -> int:
        """The end of the heading: the line of the key, or directly before the first child. A dash or a bracket on
        the line of the first child is not a heading."""
        first = node.children[0].start
        line_end = _LINE_END.search(self._text, node.start, first)
        if line_end:
            return line_end.end()
        if any(map(str.isalnum, self._text[node.start : first])):
            return first
        line = max(self._text.rfind("\n", start, first), self._text.rfind("\r", start, first))
        return max(start, line + 1)
