"""Manifest files: parses YAML with the line of every key, so that an error can name it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from latent_core.domain.errors import Invalid
from latent_core.domain.manifest.model import Manifest, parse_manifest

MAX_MANIFEST_BYTES: Final = 1024 * 1024
NESTING: Final = "[{-?:"
"""Every level of YAML begins with one of these."""
MAX_NESTING: Final = 500


def load_manifest(path: Path) -> Manifest:
    """The manifest in the file ``path``; ``Invalid`` names file, line and key of what is wrong."""
    try:
        with path.open("rb") as file:
            source = file.read(MAX_MANIFEST_BYTES + 1)
    except OSError as exc:
        raise Invalid(f"{path}: cannot be read: {exc.strerror or exc}") from exc
    return read_manifest(source, where=str(path))


def read_manifest(source: bytes | str, *, where: str = "manifest") -> Manifest:
    """The manifest written in YAML; ``where`` names it in errors."""
    if len(source) > MAX_MANIFEST_BYTES:
        raise Invalid(f"{where}: a manifest has at most {MAX_MANIFEST_BYTES} bytes")
    data, lines = load_yaml(source, where)
    return parse_manifest(data, where=where, lines=lines)


def load_yaml(source: bytes | str, where: str) -> tuple[Any, dict[str, int]]:
    """The content of a file, and the line of each dotted key; ``Invalid`` for broken YAML, aliases and duplicate keys."""
    try:
        return _load(source, where)
    except yaml.MarkedYAMLError as exc:
        raise Invalid(_marked(exc, where)) from exc
    except (yaml.YAMLError, ValueError) as exc:
        raise Invalid(f"{where}: is not YAML: {' '.join(str(exc).split())}") from exc
    except RecursionError as exc:
        raise Invalid(f"{where}: is nested too deeply") from exc


_NOT_DATES: Final = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _loader(source: bytes | str) -> yaml.SafeLoader | yaml.CSafeLoader:
    """Safe YAML that keeps dates as text.

    By libyaml, if the file cannot nest deeply, which would overflow its stack and end the process: a start reads a
    thousand files in half of the time.
    """
    text = source if isinstance(source, str) else source.decode("latin-1")
    is_flat = sum(map(text.count, NESTING)) <= MAX_NESTING
    fast = is_flat and yaml.__with_libyaml__
    loader = yaml.CSafeLoader(source) if fast else yaml.SafeLoader(source)
    loader.yaml_implicit_resolvers = _NOT_DATES
    return loader


def _load(source: bytes | str, where: str) -> tuple[Any, dict[str, int]]:
    loader = _loader(source)
    try:
        node = loader.get_single_node()
        if node is None:
            raise Invalid(f"{where}: is empty; a manifest needs at least the keys id and name")
        finder = _LineFinder(where)
        finder.visit(node)
        return loader.construct_document(node), finder.lines
    finally:
        loader.dispose()


class _LineFinder:
    """Collects the line of every dotted key; duplicate keys and aliases are errors."""

    def __init__(self, where: str) -> None:
        self.lines: dict[str, int] = {}
        self._where = where
        self._met: set[int] = set()

    def visit(self, node: yaml.Node, path: tuple[str, ...] = ()) -> None:
        line = node.start_mark.line + 1
        # An alias may expand a short file to gigabytes, and manifests do not need aliases.
        if id(node) in self._met:
            raise Invalid(
                f"{self._where}: manifests must not use YAML aliases; write the value on line {line} out in full"
            )
        self._met.add(id(node))
        if isinstance(node, yaml.MappingNode):
            self._mapping(node, path)
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                self.lines[".".join((*path, str(index)))] = value.start_mark.line + 1
                self.visit(value, (*path, str(index)))

    def _mapping(self, node: yaml.MappingNode, path: tuple[str, ...]) -> None:
        seen: dict[str, int] = {}
        for key, value in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            dotted = ".".join((*path, name))
            if name in seen:
                earlier = f"is already defined on line {seen[name]}"
                raise Invalid(f"{self._where}, line {line}: key '{dotted}' {earlier}")
            seen[name] = self.lines[dotted] = line
            self.visit(value, (*path, name))


def _marked(exc: yaml.MarkedYAMLError, where: str) -> str:
    mark = exc.problem_mark or exc.context_mark
    problem = ", ".join(part for part in (exc.context, exc.problem) if part)
    return f"{where}, line {mark.line + 1}: {problem}" if mark else f"{where}: {problem}"
