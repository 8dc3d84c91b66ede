"""Reads YAML with the place of every value, from the events of libyaml.

Events are never composed: aliases are not followed, tags not resolved, and depth does not use the stack.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import yaml

from latent_workers.parse.structured.tree import MAX_DEPTH, MalformedFile, Node, append

MAX_OPEN: Final = 1000
"""Nested mappings and lists; libyaml's time grows with the square of the depth."""
_DOCUMENT, _MAPPING, _LIST = range(3)


@dataclass(slots=True)
class _YamlFrame:
    """An open document, mapping or list."""

    kind: int
    start: int
    flow: bool = False
    children: list[Node] = field(default_factory=list)
    count: int = 0
    end: int = 0
    name: str | None = None
    """The key of the next value."""
    name_start: int = 0


def read(text: str, grain: int) -> tuple[Node, ...]:
    """The documents; values of up to ``grain`` characters are not split.

    ``MalformedFile`` says where the text is not YAML.
    """
    try:
        documents = tuple(_YamlReader(text, grain).documents())
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        raise MalformedFile(str(exc.problem or exc.context), mark.index if mark else None) from exc
    except yaml.reader.ReaderError as exc:
        raise MalformedFile(f"the character U+{_code(exc.character):04X} is not allowed") from exc
    except yaml.YAMLError as exc:
        raise MalformedFile(str(exc).partition("\n")[0]) from exc
    if not documents:
        raise MalformedFile("it has no value")
    return documents


class _YamlReader:
    def __init__(self, text: str, grain: int) -> None:
        self._text = text
        self._grain = grain
        self._open: list[_YamlFrame] = []

    def documents(self) -> Iterator[Node]:
        for event in yaml.parse(self._text, Loader=yaml.CSafeLoader):
            start, end = _place(event)
            if isinstance(event, yaml.ScalarEvent):
                self._value(start, end, event.value)
            elif isinstance(event, yaml.AliasEvent):
                self._value(start, end, f"*{event.anchor}")
            elif isinstance(event, yaml.MappingStartEvent):
                self._push(_YamlFrame(_MAPPING, start, bool(event.flow_style)))
            elif isinstance(event, yaml.SequenceStartEvent):
                self._push(_YamlFrame(_LIST, start, bool(event.flow_style)))
            elif isinstance(event, yaml.CollectionEndEvent):
                self._pop(end)
            elif isinstance(event, yaml.DocumentStartEvent):
                self._push(_YamlFrame(_DOCUMENT, start, end=end))
            elif isinstance(event, yaml.DocumentEndEvent):
                frame = self._open.pop()
                yield Node("", frame.start, frame.end, frame.children, nested=True)

    def _push(self, frame: _YamlFrame) -> None:
        if len(self._open) >= MAX_OPEN:
            raise MalformedFile(f"more than {MAX_OPEN} nested mappings and lists", frame.start)
        self._open.append(frame)

    def _pop(self, end: int) -> None:
        frame = self._open.pop()
        # A block ends where the next token begins: after the comments below it.
        end = end if frame.flow else max(frame.end, frame.start)
        if self._open[-1].kind == _DOCUMENT:
            self._open[-1].children = frame.children
        self._value(frame.start, end, None, frame)

    def _value(
        self, start: int, end: int, name: str | None, frame: _YamlFrame | None = None
    ) -> None:
        """A scalar (``name`` is its text) or collection at its place, which may be that of a key."""
        above = self._open[-1]
        above.end = max(above.end, end)
        if above.kind == _MAPPING and above.name is None:
            written = " ".join(self._text[start : min(end, start + 400)].split())
            above.name, above.name_start = written if name is None else name, start
            return
        if above.kind == _MAPPING:
            key: str | int = above.name or ""
            start = above.name_start
            above.name = None
        else:
            key = above.count
            above.count += 1
        if above.kind == _DOCUMENT or len(self._open) > MAX_DEPTH:
            return
        node = Node(key, start, max(start, end), nested=frame is not None)
        if frame is not None and node.end - node.start > self._grain:
            node.children = frame.children
        append(above.children, node, self._grain, top=len(self._open) == 2)


def _code(character: object) -> int:
    return character if isinstance(character, int) else ord(str(character)[:1] or "?")


def _place(event: yaml.Event) -> tuple[int, int]:
    """Offsets in characters, which libyaml counts for every encoding."""
    start, end = event.start_mark, event.end_mark
    return start.index if start else 0, end.index if end else 0
