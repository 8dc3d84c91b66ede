"""Reads JSON with the place of every value, in one pass over the tokens.

Comments, trailing commas, single quotes, bare keys, more number formats and several values in a row are accepted
and reported: the first of them is ``Outline.deviation``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from latent_workers.parse.structured.tree import MAX_DEPTH, MalformedFile, Node, append

MAX_OPEN: Final = 10_000
"""Nested objects and lists; more are not intended."""

_STRING, _MARK, _LITERAL, _COMMENT, _SINGLE, _WORD = range(1, 7)
_TOKEN: Final = re.compile(
    r"""[\s\ufeff]*+(?:
        ("[^"\\]*+(?:\\.[^"\\]*+)*+")
      | ([{}\[\]:,])
      | ((?:true|false|null|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?)(?![^\s,\]}:/]))
      | (//[^\r\n]*+ | /\*.*?\*/)
      | ('[^'\\]*+(?:\\.[^'\\]*+)*+')
      | ([^\s{}\[\]:,"'/]++)
    )""",
    re.VERBOSE | re.DOTALL,
)
_FURTHER_NUMBER: Final = re.compile(
    r"[+-]?(?:Infinity|NaN|0[xX][0-9a-fA-F]+|[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?)"
)
_BARE_KEY: Final = re.compile(r"[\w$][\w$-]*")


class _NextToken(Enum):
    """The tokens that may follow."""

    FIRST = auto()
    """A value or key, or the end of an empty object or list."""
    NEXT = auto()
    """A value or key after a comma."""
    COLON = auto()
    VALUE = auto()
    """The value of a key."""
    COMMA = auto()
    """A comma, or the end."""


@dataclass(slots=True)
class _JsonFrame:
    """An open object or list; ``start`` is that of its key."""

    close: str
    key: str | int
    start: int
    children: list[Node] = field(default_factory=list)
    count: int = 0
    name: str = ""
    name_start: int = 0


@dataclass(frozen=True, slots=True)
class Outline:
    """The values of a file. ``deviation`` is the first thing that strict JSON does not allow."""

    documents: tuple[Node, ...]
    deviation: MalformedFile | None


def read(text: str, grain: int) -> Outline:
    """Values of up to ``grain`` characters are not split. ``MalformedFile`` says where the text is not JSON."""
    return _JsonReader(text, grain).read()


class _JsonReader:
    def __init__(self, text: str, grain: int) -> None:
        self._text = text
        self._grain = grain
        self._open: list[_JsonFrame] = []
        self._wants = _NextToken.VALUE
        self._values: list[Node] = []
        self._deviation: MalformedFile | None = None

    def read(self) -> Outline:
        at = 0
        match = _TOKEN.match
        text = self._text
        while token := match(text, at):
            kind = token.lastindex
            at = token.end()
            start = token.start(kind or 0)
            if kind == _MARK:
                self._mark(text[start], start)
            elif kind == _STRING:
                self._string(start, at)
            elif kind == _LITERAL:
                self._scalar(start, at)
            elif kind == _COMMENT:
                self._deviate("a comment", start)
            elif kind == _SINGLE:
                self._deviate("single quotes", start)
                self._string(start, at)
            else:
                self._word(start, at)
        self._finish(at)
        return Outline(tuple(self._values), self._deviation)

    def _finish(self, at: int) -> None:
        rest = self._text[at:]
        if rest.strip():
            raise MalformedFile("an invalid value", at + len(rest) - len(rest.lstrip()))
        if self._open:
            raise MalformedFile(
                f"'{self._open[-1].close}' is missing", len(self._text.rstrip()) - 1
            )
        if not self._values:
            raise MalformedFile("there is no value")

    def _mark(self, mark: str, at: int) -> None:
        if mark in "{[":
            self._push("}" if mark == "{" else "]", at)
        elif mark in "}]":
            self._pop(mark, at)
        elif mark == ":":
            if self._wants is not _NextToken.COLON:
                raise MalformedFile("a colon without a key", at)
            self._wants = _NextToken.VALUE
        elif self._wants is _NextToken.COMMA and self._open:
            self._wants = _NextToken.NEXT
        else:
            raise MalformedFile("a comma without a value", at)

    def _push(self, close: str, at: int) -> None:
        key, start = self._place(at)
        if len(self._open) >= MAX_OPEN:
            raise MalformedFile(f"more than {MAX_OPEN} nested objects and lists", at)
        self._open.append(_JsonFrame(close, key, start))
        self._wants = _NextToken.FIRST

    def _pop(self, mark: str, at: int) -> None:
        if not self._open or self._open[-1].close != mark:
            raise MalformedFile(f"'{mark}' closes nothing", at)
        if self._wants is _NextToken.NEXT:
            self._deviate("a trailing comma", at)
        elif self._wants not in (_NextToken.FIRST, _NextToken.COMMA):
            raise MalformedFile("a value is missing", at)
        frame = self._open.pop()
        node = Node(frame.key, frame.start, at + 1, nested=True)
        if node.end - node.start > self._grain or not self._open:
            node.children = frame.children
        self._add(node)

    def _string(self, start: int, end: int) -> None:
        if self._at_key():
            self._name(_unquoted(self._text[start:end]), start)
        else:
            self._scalar(start, end)

    def _word(self, start: int, end: int) -> None:
        word = self._text[start:end]
        if self._at_key() and _BARE_KEY.fullmatch(word):
            self._deviate("a key without quotes", start)
            self._name(word, start)
        elif _FURTHER_NUMBER.fullmatch(word):
            self._deviate("a number that is not valid in JSON", start)
            self._scalar(start, end)
        else:
            raise MalformedFile("an invalid value", start)

    def _scalar(self, start: int, end: int) -> None:
        key, first = self._place(start)
        self._add(Node(key, first, end))

    def _at_key(self) -> bool:
        wants = self._wants
        return (
            (wants is _NextToken.FIRST or wants is _NextToken.NEXT)
            and bool(self._open)
            and self._open[-1].close == "}"
        )

    def _name(self, name: str, start: int) -> None:
        frame = self._open[-1]
        frame.name, frame.name_start = name, start
        self._wants = _NextToken.COLON

    def _place(self, at: int) -> tuple[str | int, int]:
        """The key of the value that starts at ``at``, and where key and value start."""
        wants = self._wants
        if not self._open:
            if self._values:
                self._deviate("several values in a row", at)
            return "", at
        frame = self._open[-1]
        if frame.close == "}":
            if wants is not _NextToken.VALUE:
                raise MalformedFile("a value without a key", at)
            return frame.name, frame.name_start
        if wants is _NextToken.COMMA:
            raise MalformedFile("a comma is missing", at)
        frame.count += 1
        return frame.count - 1, at

    def _add(self, node: Node) -> None:
        self._wants = _NextToken.COMMA
        if not self._open:
            self._values.append(node)
        elif len(self._open) <= MAX_DEPTH:
            append(self._open[-1].children, node, self._grain, top=len(self._open) == 1)

    def _deviate(self, what: str, at: int) -> None:
        if self._deviation is None:
            self._deviation = MalformedFile(what, at)


def _unquoted(token: str) -> str:
    """The name in a quoted key; unchanged if it cannot be decoded."""
    if "\\" not in token:
        return token[1:-1]
    try:
        return str(json.loads(token, strict=False))
    except ValueError:
        return token[1:-1]
