"""Finds the definitions of a source file: by its grammar, else by blank lines and indentation."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Final

from tree_sitter import Node

from latent_workers.parse.code.grammars import GRAMMARS, Grammar, definition, parser_for
from latent_workers.parse.text.lines import Lines

MAX_CHARS: Final = 4_000_000
"""Longer files are split by their indentation."""
CHARS_PER_STEP: Final = 4
"""The parser reports every hundredth operation, about every 80 characters of code. A file that needs twenty times
as many is not code in its language and would take minutes. Operations are counted instead of timed, so that the
same file always gives the same blocks."""
LONG_LINES: Final = 60
"""Of a longer function the functions in it are known, too."""
MAX_LEVEL: Final = 3
MAX_NESTING: Final = 8
"""Of transparent nodes."""
BODIES: Final = frozenset({"class_body", "enum_class_body"})
"""Kinds of bodies in grammars that do not name the field."""
_READ: Final = 65_536
_MAX_NAME_BYTES: Final = 200
_LONE_CR: Final = re.compile(r"\r(?!\n)")
_NO_START: Final = tuple("})]>*;")


@dataclass(frozen=True, slots=True)
class Definition:
    """Lines ``first`` to ``last``, from 1, including the comments directly above; ``path`` ends with its name."""

    first: int
    last: int
    path: tuple[str, ...]
    level: int
    members: tuple[Definition, ...] = ()
    is_scope: bool = False
    """Its members stand for themselves: it is a class, and not a function with others in it."""


def by_grammar(text: str, lines: Lines, language: str | None) -> tuple[Definition, ...]:
    """The top-level definitions in order; empty if the language has no grammar or nothing is found."""
    parser = parser_for(language) if language else None
    if parser is None or language is None or len(text) > MAX_CHARS:
        return ()
    # To a grammar, a lone CR is white space, and the whole file may be one comment.
    data = (_LONE_CR.sub("\n", text) if "\r" in text else text).encode("utf-8")
    steps = 0
    max_steps = 100_000 + len(data) // CHARS_PER_STEP

    def is_stopped(_offset: int, _has_error: bool) -> bool:
        nonlocal steps
        steps += 1
        return steps > max_steps

    try:
        tree = parser.parse(
            lambda offset, _point: data[offset : offset + _READ], progress_callback=is_stopped
        )
    except ValueError:  # stopped
        parser.reset()
        return ()
    return tuple(_Finder(text, data, lines, GRAMMARS[language]).inside(tree.root_node, (), 1, 0))


def by_indentation(lines: Lines) -> Iterator[Definition]:
    """Blocks that start at the left edge after a blank line."""
    starts: list[int] = []
    above = ""
    for number, line in enumerate(lines.texts(), start=1):
        begins = line.strip() and not line[0].isspace() and not line.startswith(_NO_START)
        if begins and not above.strip():
            starts.append(number)
        above = line
    for first, following in pairwise([*starts, len(lines) + 1]):
        yield Definition(first, following - 1, (), 1)


class _Finder:
    """Turns nodes into definitions: byte offsets into lines."""

    def __init__(self, text: str, data: bytes, lines: Lines, grammar: Grammar) -> None:
        self._data = data
        self._grammar = grammar
        self._starts = _byte_starts(text, lines)

    def inside(
        self, node: Node, path: tuple[str, ...], level: int, done: int
    ) -> Iterator[Definition]:
        """Definitions among the children of ``node`` after line ``done``; no two share a line."""
        children = list(self._children(node, MAX_NESTING))
        for index, child in enumerate(children):
            found = definition(child, self._grammar)
            if found is None:
                continue
            first = self._first(children, index, done)
            last = self._line(max(child.start_byte, child.end_byte - 1))
            if first > done:
                inner, names = found
                own = (*path, ".".join(map(self._words, names)))
                is_scope = inner.type in self._grammar.scopes
                searched = is_scope or last - first >= LONG_LINES
                members = self._members(inner, own, level) if searched else ()
                yield Definition(first, last, own, level, members, is_scope)
                done = last

    def _children(self, node: Node, depth: int) -> Iterator[Node]:
        """Children, and instead of transparent ones their children."""
        for child in node.children:
            if depth and child.type in self._grammar.transparent:
                yield from self._children(child, depth - 1)
            else:
                yield child

    def _members(self, node: Node, path: tuple[str, ...], level: int) -> tuple[Definition, ...]:
        body = node.child_by_field_name("body") or next(
            (child for child in node.named_children if child.type in BODIES), None
        )
        if body is None or level >= MAX_LEVEL:
            return ()
        return tuple(self.inside(body, path, level + 1, self._line(node.start_byte)))

    def _first(self, children: Sequence[Node], index: int, done: int) -> int:
        """The first line of a definition, including the comments and attributes directly above."""
        first = self._line(children[index].start_byte)
        for at in range(index - 1, -1, -1):
            above = children[at]
            start = self._line(above.start_byte)
            end = self._line(max(above.start_byte, above.end_byte - 1))
            if above.type not in self._grammar.attached or end < first - 1 or start <= done:
                break
            first = start
        return first

    def _words(self, node: Node) -> str:
        # Its own ``text`` would be read through the callback.
        end = min(node.end_byte, node.start_byte + _MAX_NAME_BYTES)
        return " ".join(self._data[node.start_byte : end].decode("utf-8", "replace").split())

    def _line(self, byte: int) -> int:
        return bisect_right(self._starts, byte)


def _byte_starts(text: str, lines: Lines) -> list[int]:
    """The offset of each line in UTF-8."""
    starts = [start for start, _ in lines.spans()]
    if text.isascii():
        return starts
    sizes = (
        len(text[start:end].encode("utf-8"))
        for start, end in zip(starts, chain(starts[1:], [len(text)]), strict=True)
    )
    return [0, *accumulate(sizes)][: len(starts)]
