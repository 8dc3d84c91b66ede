"""The shipped manifests: annotated YAML to begin a container with. Nothing is created from them until a person names
one."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

import orjson
import yaml

from latent_core.domain.errors import NotFound
from latent_core.domain.golden import GoldenSet, parse_golden
from latent_core.domain.manifest.model import Manifest, parse_manifest
from latent_core.domain.manifest.yaml_reader import read_manifest

SHIPPED: Final = files("latent_core.domain.manifest") / "shipped"
SUFFIX: Final = ".yaml"
OF_EMBEDDER: Final = ("embedder_version", "dims")
KINDS: Final = ("notes", "code", "papers", "web", "pictures")
"""Templates for a kind of content, in the order in which they are offered. The others are complete examples."""
_KEY: Final = re.compile(r"^(id|name|theme|embedder):.*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ManifestTemplate:
    """A shipped manifest with its comments."""

    name: str
    about: str
    """Its first comment: what such a container is for."""
    source: str
    """The annotated YAML."""
    manifest: Manifest

    def written(self, words: dict[str, str]) -> str:
        """The annotated YAML with the keys ``words`` replaced: of ``id``, ``name``, ``theme``, ``embedder``. Under
        another id its name becomes the id, unless ``words`` have a name."""
        return _KEY.sub(lambda found: _line(found, self._given(words)), self.source)

    def filled(self, words: dict[str, Any]) -> Manifest:
        """As ``written``, for any keys, and without comments. Another embedder has its own version and dimensions, unless
        ``words`` have them."""
        given = self._given(words)
        stored = self.manifest.model_dump(mode="json", exclude_defaults=True)
        if given.get("embedder", self.manifest.embedder) != self.manifest.embedder:
            stored = {key: value for key, value in stored.items() if key not in OF_EMBEDDER}
        values = {"id": self.manifest.id, **stored, **given}
        return parse_manifest(values, where=f"template {self.name}")

    def _given(self, words: dict[str, Any]) -> dict[str, Any]:
        if words.get("id", self.manifest.id) == self.manifest.id:
            return words
        return {"name": words["id"], **words}


def _line(found: re.Match[str], words: dict[str, str]) -> str:
    key = found[1]
    if key not in words:
        return found[0]
    scalar = yaml.safe_dump({key: words[key]}, allow_unicode=True, width=10_000)
    return scalar.rstrip("\n")


def names() -> list[str]:
    """The names of the templates: kinds of content first, then examples."""
    found = (entry.name for entry in SHIPPED.iterdir())
    examples = (name.removesuffix(SUFFIX) for name in found if name.endswith(SUFFIX))
    return [*KINDS, *sorted(examples)]


@cache
def template(name: str) -> ManifestTemplate:
    """The template of that name; ``NotFound`` names the nearest one."""
    known = names()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"there are: {', '.join(known)}"
        raise NotFound(f"no template '{name[:80]}'; {hint}")
    folder = SHIPPED / "kinds" if name in KINDS else SHIPPED
    source = (folder / f"{name}{SUFFIX}").read_text("utf-8")
    manifest = read_manifest(source, where=f"template {name}")
    return ManifestTemplate(name, _about(source), source, manifest)


def _about(source: str) -> str:
    """The comment at the begin of the file."""
    lines = []
    for line in source.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    return " ".join(lines)


def golden_queries(name: str) -> GoldenSet | None:
    """The golden queries that come with the template."""
    for file in (SHIPPED / name / "eval.json", SHIPPED / f"{name}.eval.json"):
        if file.is_file():
            data = orjson.loads(file.read_bytes())
            return parse_golden(data, where=f"golden queries of template {name}")
    return None
