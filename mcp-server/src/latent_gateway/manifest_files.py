"""The manifest folder: one YAML a container, and ``<id>/eval.json`` with its golden queries."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, Final

import orjson
import yaml

from latent_core.domain.errors import LatentError, OutOfSpace
from latent_core.domain.manifest.model import Manifest
from latent_core.domain.manifest.yaml_reader import load_manifest

EVAL_TEMPLATE: Final[dict[str, Any]] = {
    "queries": [],
    "thresholds": {"ndcg@10": 0.8, "recall@20": 0.8, "p95_latency_ms": 500},
}


async def write_files(folder: Path, manifest: Manifest) -> list[str]:
    """Write the manifest unless its file says the same, and a template of golden queries; answers the names written."""
    try:
        return await asyncio.to_thread(_write, folder, manifest)
    except OSError as exc:
        raise OutOfSpace(
            f"the container exists, but its manifest could not be written: {exc.strerror}"
        ) from exc


def _write(folder: Path, manifest: Manifest) -> list[str]:
    shown = manifest.model_dump(mode="json", exclude_defaults=True)
    text = yaml.safe_dump({"id": manifest.id, **shown}, sort_keys=False, allow_unicode=True)
    template = orjson.dumps(EVAL_TEMPLATE, option=orjson.OPT_INDENT_2).decode() + "\n"
    yaml_name, eval_name = f"{manifest.id}.yaml", f"{manifest.id}/eval.json"
    written = []
    if not _says(folder / yaml_name, manifest):
        _write_whole(folder / yaml_name, text)
        written.append(yaml_name)
    if not (folder / eval_name).exists():
        _write_whole(folder / eval_name, template)
        written.append(eval_name)
    return written


async def forget_template(folder: Path, container_id: str) -> list[str]:
    """Of a container that was deleted: the template of golden queries goes unless somebody wrote into it; answers the
    names of golden queries that stay, which are their author's to remove."""
    return await asyncio.to_thread(_forget, folder, container_id)


def _forget(folder: Path, container_id: str) -> list[str]:
    stays = []
    for path in (folder / container_id / "eval.json", folder / f"{container_id}.eval.json"):
        try:
            if orjson.loads(path.read_bytes()) == EVAL_TEMPLATE:
                path.unlink()
                if path.parent != folder:
                    path.parent.rmdir()
        except FileNotFoundError:
            continue
        except (
            OSError,
            ValueError,
        ):  # not ours, or not to be written; or other files stand beside it
            pass
        if os.path.exists(path):
            stays.append(path.relative_to(folder).as_posix())
    return stays


def _says(path: Path, manifest: Manifest) -> bool:
    """Whether the file is this manifest already: then its own words and comments stay."""
    try:
        return load_manifest(path) == manifest
    except LatentError:
        return False


def _write_whole(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(content, encoding="utf-8")
    partial.replace(path)
