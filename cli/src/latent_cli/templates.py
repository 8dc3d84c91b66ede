"""Manifests and sample documents that come with the command line (``latent_cli/data``). Nothing is created from them
until a command names one."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Final

import orjson

from latent_core.domain.errors import NotFound
from latent_core.domain.golden import GoldenSet, parse_golden
from latent_core.domain.manifest.model import Manifest, parse_manifest
from latent_core.domain.manifest.yaml_reader import read_manifest

DATA: Final = files("latent_cli") / "data"
SUFFIX: Final = ".yaml"
OF_EMBEDDER: Final = ("embedder_version", "dims")


def names() -> list[str]:
    """The names of the templates, sorted."""
    found = (entry.name for entry in (DATA / "manifests").iterdir())
    return sorted(name.removesuffix(SUFFIX) for name in found if name.endswith(SUFFIX))


def template(name: str) -> Manifest:
    """The manifest of that name; ``NotFound`` names the nearest one."""
    known = names()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"there are: {', '.join(known)}"
        raise NotFound(f"no template '{name[:80]}'; {hint}")
    source = (DATA / "manifests" / f"{name}{SUFFIX}").read_bytes()
    return read_manifest(source, where=f"template {name}")


def golden_queries(name: str) -> GoldenSet | None:
    """The golden queries that come with the template."""
    for file in (DATA / "manifests" / name / "eval.json", DATA / "manifests" / f"{name}.eval.json"):
        if file.is_file():
            data = orjson.loads(file.read_bytes())
            return parse_golden(data, where=f"golden queries of template {name}")
    return None


def filled(name: str, words: dict[str, Any]) -> Manifest:
    """The template with the keys ``words`` replaced. Under another id its name becomes the id, and another embedder has
    its own version and dimensions, unless ``words`` name them."""
    found = template(name)
    if words.get("id", found.id) != found.id:
        words = {"name": words["id"], **words}
    written = found.model_dump(mode="json", exclude_defaults=True)
    if words.get("embedder", found.embedder) != found.embedder:
        written = {key: value for key, value in written.items() if key not in OF_EMBEDDER}
    return parse_manifest({"id": found.id, **written, **words}, where=f"template {name}")


@contextmanager
def sample_folder(name: str) -> Iterator[Path]:
    """The folder of sample documents of that name."""
    with as_file(DATA / "samples" / name) as folder:
        yield folder
