"""The manifest folder: one YAML a container, and ``<id>/eval.json`` with its golden queries."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, Final

import orjson
import yaml

from latent_core.domain.errors import OutOfSpace
from latent_core.domain.manifest import Manifest

EVAL_TEMPLATE: Final[dict[str, Any]] = {
    "queries": [],
    "thresholds": {"ndcg@10": 0.8, "recall@20": 0.8, "p95_latency_ms": 500},
}


async def write_files(folder: Path, manifest: Manifest) -> list[str]:
    """Write what is not there yet; answers the names written, relative to ``folder``."""
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
    wanted = {f"{manifest.id}.yaml": text, f"{manifest.id}/eval.json": template}
    return [name for name, content in wanted.items() if _write_new(folder / name, content)]


def _write_new(path: Path, content: str) -> bool:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        return False
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(content, encoding="utf-8")
    partial.replace(path)
    return True
