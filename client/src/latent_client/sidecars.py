"""Sidecar files: ``a.md.meta.yaml`` holds meta of ``a.md``.

A sidecar is not a document. Its meta overrides the meta from the path and from the file itself. Flags of the
call override the sidecar.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from latent_client.files import unreadable
from latent_client.walk import SIDECAR, FoundFile
from latent_core.domain.errors import Invalid
from latent_core.domain.text import MAX_META_BYTES, unsound

_BASE: Final[type[yaml.SafeLoader]] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(slots=True)
class SidecarMetas:
    """Meta of each file of a folder, from sidecars and from the call."""

    flags: Mapping[str, Any]
    """Meta from the call; applies to every file."""
    by_path: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Meta of files with a sidecar."""
    broken: dict[str, str] = field(default_factory=dict)
    """Files with an unreadable sidecar, and the reason."""

    def of(self, path: str) -> dict[str, Any]:
        return {**self.by_path.get(path, {}), **self.flags}


def read_sidecars(files: Sequence[FoundFile], flags: Mapping[str, Any]) -> SidecarMetas:
    """Read every sidecar. Blocking."""
    metas = SidecarMetas(flags)
    for file in files:
        if file.sidecar is None:
            continue
        try:
            metas.by_path[file.path] = read_meta(file.sidecar, where=file.path + SIDECAR)
        except Invalid as exc:
            metas.broken[file.path] = exc.message
    return metas


def sidecar_of(file: Path) -> Path | None:
    """The sidecar of a file, if it has one. Blocking."""
    sidecar = file.with_name(file.name + SIDECAR)
    return sidecar if sidecar.is_file() else None


def read_meta(file: Path, *, where: str | None = None) -> dict[str, Any]:
    """Meta from a YAML file. ``Invalid`` names the file (as ``where``) and the line. Blocking."""
    name = where or str(file)
    try:
        with file.open("rb") as opened:
            source = opened.read(MAX_META_BYTES + 1)
    except OSError as exc:
        raise unreadable(Path(name), exc) from exc
    if len(source) > MAX_META_BYTES:
        raise Invalid(f"{name}: meta is larger than {MAX_META_BYTES} bytes")
    try:
        meta = _load(source, name)
    except yaml.MarkedYAMLError as exc:
        raise Invalid(_marked(exc, name)) from exc
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError) as exc:
        # PyYAML's constructors raise these for a wrong tag, such as !!int on a word.
        raise Invalid(f"{name}: invalid YAML: {' '.join(str(exc).split())[:300]}") from exc
    except RecursionError as exc:
        raise Invalid(f"{name}: YAML is nested too deeply") from exc
    wrong = unsound(meta)
    if wrong is not None:
        key, why = wrong
        raise Invalid(f"{name}: {key or 'meta'}: {why}")
    return meta


class _SidecarLoader(_BASE):  # type: ignore[misc, valid-type]  # one of two classes of the same shape
    """Safe YAML loader that keeps dates as text."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def _load(source: bytes, name: str) -> dict[str, Any]:
    loader = _SidecarLoader(source)
    try:
        node = loader.get_single_node()
        if node is None:
            return {}
        _check(node, name)
        meta = loader.construct_document(node)
    finally:
        loader.dispose()
    if not isinstance(meta, dict):
        raise Invalid(f"{name}, line 1: meta must be a mapping, not {type(meta).__name__}")
    return meta


def _check(root: yaml.Node, name: str) -> None:
    """Refuse aliases, keys that are not text, and duplicate keys. Aliases can expand a short file to gigabytes."""
    waiting, met = [root], set[int]()
    while waiting:
        node = waiting.pop()
        line = node.start_mark.line + 1
        if id(node) in met:
            raise Invalid(
                f"{name}, line {line}: YAML aliases are not allowed in meta; repeat the value instead"
            )
        met.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            _check_keys(node, name)
            waiting += [value for _, value in node.value]


def _check_keys(node: yaml.MappingNode, name: str) -> None:
    seen: set[str] = set()
    for key, _ in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode) or not key.tag.endswith(":str"):
            raise Invalid(f"{name}, line {line}: a key must be text; put it in quotes")
        if key.value in seen:
            raise Invalid(f"{name}, line {line}: duplicate key '{key.value}'")
        seen.add(key.value)


def _marked(exc: yaml.MarkedYAMLError, name: str) -> str:
    mark = exc.problem_mark or exc.context_mark
    problem = ", ".join(part for part in (exc.context, exc.problem) if part)
    return f"{name}, line {mark.line + 1}: {problem}" if mark else f"{name}: {problem}"
