"""Golden queries in the manifest folder, read at the start for containers that never had some in the database.

Afterwards the database owns them, as it owns the manifests.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

import orjson

from latent_core.db import golden
from latent_core.domain.errors import Invalid
from latent_core.domain.golden import GoldenSet
from latent_core.eval.datasets import read_golden
from latent_core.stack import Stack
from latent_gateway.auth.principal import OWNER

logger = logging.getLogger(__name__)

FILES: Final = ("{id}/eval.json", "{id}.eval.json")


async def adopt_golden(stack: Stack, folder: Path) -> None:
    """Store the golden queries of the folder; a file that is not valid is logged."""
    async with stack.db.reading() as conn:
        waiting = await golden.containers_without(conn)
    found = await asyncio.to_thread(_read, folder, waiting)
    for container_id, golden_set in found.items():
        async with stack.db.transaction() as conn:
            version = await golden.begin(conn, container_id, OWNER)
            if version == 1:  # another gateway may have been faster
                await golden.replace(conn, container_id, golden_set, version)
        logger.info(
            "golden_queries_adopted",
            extra={"container_id": container_id, "queries": len(golden_set.queries)},
        )


def files_of(folder: Path, container_id: str) -> list[str]:
    """Names of the container's files in the folder, relative to it."""
    names = [name.format(id=container_id) for name in FILES]
    return [name for name in names if (folder / name).is_file()]


def _read(folder: Path, container_ids: list[str]) -> dict[str, GoldenSet]:
    found = {}
    for container_id in container_ids:
        for name in files_of(folder, container_id)[:1]:
            file = folder / name
            try:
                if not _is_template(file):
                    found[container_id] = read_golden(file, f"manifests/{name}")
            except Invalid as exc:
                logger.warning(
                    "golden_queries_not_adopted",
                    extra={
                        "container_id": container_id,
                        "cause": exc.message,
                        "remedy": f"correct the file, then: latent golden import {container_id} {file}",
                    },
                )
    return found


def _is_template(file: Path) -> bool:
    """Whether it has no queries, as former releases wrote it for new containers."""
    try:
        data = orjson.loads(file.read_bytes())
    except (OSError, ValueError):
        return False  # read_golden says what is wrong
    return isinstance(data, dict) and data.get("queries") == []
