"""Edits of JSON with comments and trailing commas that change one entry and leave every other byte as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from latent_core.domain.errors import Invalid

MAX_DEPTH: Final = 200
_TRIVIA: Final = re.compile(r"(?:[\s\ufeff]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_SCALAR: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|[-+.\w]+')
_INDENT: Final = re.compile(r"\n([ \t]+)\S")

Path = Sequence[str]


@dataclass(frozen=True, slots=True)
class Node:
    """A value between two offsets of the text. ``members`` are those of an object or the items of an array."""

    start: int
    end: int
    value: Any
    members: tuple[Member, ...] = ()


@dataclass(frozen=True, slots=True)
class Member:
    """An entry of an object from its key on, or an item of an array, whose key is empty."""

    start: int
    key: str
    node: Node


def parse(text: str) -> Any:
    """The value of the text, ``None`` without one. ``Invalid`` names the line that is not valid."""
    root = _root(text)
    return None if root is None else root.value


def value_at(text: str, path: Path) -> Any:
    """The value under these keys; ``None`` if there is none."""
    node = _at(_root(text), path)
    return None if node is None else node.value


def with_entry(text: str, path: Path, value: Any) -> str:
    """The text with this value under these keys; a missing object on the way is created."""
    root = _root(text)
    if root is None:
        return _below(text, _nested(path, value))
    node = root
    for depth, key in enumerate(path):
        _check_object(node, path[:depth])
        member = _member(node, key)
        if member is None:
            return _inserted(text, node, key, _nested(path[depth + 1 :], value))
        node = member.node
    indent = _line_indent(text, node.start)
    return text[: node.start] + _written(text, value, indent) + text[node.end :]


def with_item(text: str, path: Path, value: Any) -> str:
    """The text with this item at the end of the array under these keys."""
    node = _at(_root(text), path)
    if node is None:
        return with_entry(text, path, [value])
    if not isinstance(node.value, list):
        raise Invalid(f"'{'.'.join(path)}' is not an array")
    return _inserted(text, node, None, value)


def without_entry(text: str, path: Path, *, created: int = 0) -> str:
    """The text without the entry under these keys, and without up to ``created`` objects around it that are empty
    then."""
    text = _without_member(text, path[:-1], lambda member: member.key == path[-1])
    return without_empty(text, path[:-1], created)


def without_item(text: str, path: Path, item: Any, *, created: int = 0) -> str:
    """The text without this item of the array, and without up to ``created`` empty levels around it."""
    text = _without_member(text, path, lambda member: member.node.value == item)
    return without_empty(text, path, created)


def without_empty(text: str, path: Path, created: int) -> str:
    """Without the innermost levels of the path that hold neither a member nor a comment; at most ``created``."""
    for _ in range(min(created, len(path))):
        node = _at(_root(text), path)
        if node is None or node.members or text[node.start + 1 : node.end - 1].strip():
            return text
        *outer, key = path
        text = without_entry(text, [*outer, key])
        path = outer
    return text


def _root(text: str) -> Node | None:
    start = _skip(text, 0)
    if start == len(text):
        return None
    root = _node(text, start, 0)
    rest = _skip(text, root.end)
    if rest != len(text):
        raise _error(text, rest)
    return root


def _node(text: str, at: int, depth: int) -> Node:
    if depth > MAX_DEPTH:
        raise Invalid(f"it is nested deeper than {MAX_DEPTH} levels")
    if text[at : at + 1] in ("{", "["):
        return _collection(text, at, depth)
    scalar = _SCALAR.match(text, at)
    if scalar is None:
        raise _error(text, at)
    try:
        return Node(at, scalar.end(), json.loads(scalar[0], strict=False))
    except ValueError as exc:
        raise _error(text, at) from exc


def _collection(text: str, start: int, depth: int) -> Node:
    is_object = text[start] == "{"
    closing = "}" if is_object else "]"
    members: list[Member] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != closing:
        member_start, key = at, ""
        if is_object:
            name = _node(text, at, depth + 1)
            if not isinstance(name.value, str):
                raise _error(text, at)
            key = name.value
            at = _skip(text, name.end)
            if text[at : at + 1] != ":":
                raise _error(text, at)
            at = _skip(text, at + 1)
        node = _node(text, at, depth + 1)
        members.append(Member(member_start, key, node))
        at = _skip(text, node.end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != closing:
            raise _error(text, at)
    values = [member.node.value for member in members]
    value = {m.key: m.node.value for m in members} if is_object else values
    return Node(start, at + 1, value, tuple(members))


def _skip(text: str, at: int) -> int:
    """The next offset that is neither white space nor part of a comment."""
    trivia = _TRIVIA.match(text, at)
    return trivia.end() if trivia is not None else at


def _error(text: str, at: int) -> Invalid:
    line = text.count("\n", 0, at) + 1
    return Invalid(f"line {line} is not valid JSON")


def _at(root: Node | None, path: Path) -> Node | None:
    node = root
    for key in path:
        member = None if node is None else _member(node, key)
        node = None if member is None else member.node
    return node


def _member(node: Node, key: str) -> Member | None:
    """The last one under this key: readers of JSON use that one."""
    if not isinstance(node.value, dict):
        return None
    return next((member for member in reversed(node.members) if member.key == key), None)


def _check_object(node: Node, path: Path) -> None:
    if not isinstance(node.value, dict):
        name = ".".join(path)
        raise Invalid(f"'{name}' is not an object" if name else "it is not an object")


def _nested(path: Path, value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _below(text: str, value: Any) -> str:
    """A file without a value: below its comments."""
    newline = _newline(text)
    above = text.rstrip()
    return (
        f"{above}{newline if above.strip(chr(0xFEFF)) else ''}{_written(text, value, '')}{newline}"
    )


def _inserted(text: str, node: Node, key: str | None, value: Any) -> str:
    """With one more member at the end of an object, or item of an array."""
    newline, closing = _newline(text), _line_indent(text, node.start)
    inline = bool(node.members) and "\n" not in text[node.start : node.end]
    own_line = [m for m in node.members if _begins_line(text, m.start)]
    indent = _line_indent(text, own_line[0].start) if own_line else closing + _unit(text)
    written = json.dumps(value, ensure_ascii=False) if inline else _written(text, value, indent)
    entry = written if key is None else f"{json.dumps(key, ensure_ascii=False)}: {written}"
    after = node.members[-1].node.end if node.members else node.start + 1
    comma = _skip(text, after) if node.members else -1
    has_comma = text[comma : comma + 1] == "," if node.members else False
    tail_start = comma + 1 if has_comma else after
    tail = text[tail_start : node.end - 1]
    place = tail_start + len(tail.rstrip())
    rest = text[place : node.end - 1]
    separator = " " if inline else newline + indent
    return "".join(
        (
            text[:after],
            "," if node.members and not has_comma else "",
            text[after:place],
            separator + entry + ("," if has_comma else ""),
            rest if inline or "\n" in rest else newline + closing,
            text[node.end - 1 :],
        )
    )


def _without_member(text: str, path: Path, matches: Callable[[Member], bool]) -> str:
    node = _at(_root(text), path)
    members = () if node is None else node.members
    for index in range(len(members) - 1, -1, -1):
        if matches(members[index]):
            text = _cut(text, members, index)
            return _without_member(text, path, matches)
    return text


def _cut(text: str, members: Sequence[Member], index: int) -> str:
    """Without one member, its comma and the white space before it. Comments stay."""
    start, end = members[index].start, members[index].node.end
    comma = _skip(text, end)
    if text[comma : comma + 1] == ",":
        text = text[:comma] + text[comma + 1 :]
    elif index:
        before = _skip(text, members[index - 1].node.end)
        text = text[:before] + text[before + 1 :]
        start, end = start - 1, end - 1
    above, below = text[:start], text[end:]
    blank = above[len(above.rstrip()) :]
    same_line = below.partition("\n")[0].strip()
    is_first = above.rstrip()[-1:] in ("{", "[")
    if same_line and (is_first or "\n" in blank):  # it may not join a comment of the line above
        return above + below.lstrip(" \t")
    above = above.rstrip()
    is_empty = is_first and below.lstrip()[:1] in ("}", "]")
    return above + (below.lstrip() if is_empty else below)


def _written(text: str, value: Any, indent: str) -> str:
    lines = json.dumps(value, ensure_ascii=False, indent=_unit(text)).split("\n")
    return (_newline(text) + indent).join(lines)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _unit(text: str) -> str:
    """One level of indentation, as the first indented line has it."""
    first = _INDENT.search(text)
    return "  " if first is None else first[1]


def _line_indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at].lstrip("\ufeff")
    return line[: len(line) - len(line.lstrip())]


def _begins_line(text: str, at: int) -> bool:
    return not text[text.rfind("\n", 0, at) + 1 : at].strip()
