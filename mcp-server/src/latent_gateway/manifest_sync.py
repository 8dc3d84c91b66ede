"""At start every manifest of the folder is validated; one whose container is missing is created (DESIGN §5),
unless somebody deleted it: what was deleted does not come back by itself.

Afterwards the database owns it: a file that differs is reported with the command that applies it.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from latent_core.db import audit, containers
from latent_core.domain.errors import Invalid, LatentError
from latent_core.domain.manifest.availability import check_offered
from latent_core.domain.manifest.model import Manifest
from latent_core.domain.manifest.yaml_reader import load_manifest
from latent_core.ingest import containers as founding
from latent_core.settings import Settings
from latent_core.stack import Stack
from latent_gateway.auth.principal import OWNER

logger = logging.getLogger(__name__)

MAX_MANIFESTS: Final = 1000


async def sync_manifests(settings: Settings, stack: Stack) -> None:
    """Create what is missing; ``Invalid`` names file, line and key of what cannot be read."""
    manifests = await asyncio.to_thread(read_folder, settings.manifests)
    async with stack.db.transaction() as conn:
        known = {c.id: c for c in await containers.all_(conn)}
        deleted = await audit.deleted(conn, [m.id for _, m in manifests if m.id not in known])
    for path, manifest in manifests:
        if manifest.id in deleted:
            logger.info(
                "manifest_of_a_deleted_container",
                extra={
                    "container_id": manifest.id,
                    "file": path.name,
                    "remedy": f"remove the file, or: latent container create --file {path}",
                },
            )
        elif manifest.id not in known:
            await _create(stack, path, manifest)
        elif founding.etag(manifest) != known[manifest.id].etag:
            logger.warning(
                "manifest_differs",
                extra={
                    "container_id": manifest.id,
                    "file": path.name,
                    "remedy": f"latent container apply {path}",
                },
            )


def read_folder(folder: Path) -> list[tuple[Path, Manifest]]:
    """Every manifest of a folder; two files with one id are refused."""
    files = sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])[:MAX_MANIFESTS]
    found: dict[str, tuple[Path, Manifest]] = {}
    for path in files:
        manifest = load_manifest(path)
        if manifest.id in found:
            raise Invalid(
                f"{path.name} and {found[manifest.id][0].name} both describe container '{manifest.id}'"
            )
        found[manifest.id] = (path, manifest)
    return list(found.values())


async def _create(stack: Stack, path: Path, manifest: Manifest) -> None:
    try:
        for issue in check_offered(manifest, stack.settings.blob_bucket):
            logger.warning(
                "manifest_of_elsewhere", extra={"file": path.name, "cause": issue.message}
            )
        await founding.create(
            stack.db, stack.vectors, stack.embedders, manifest, principal=OWNER, request_id=None
        )
    except LatentError as error:
        logger.warning("manifest_not_applied", extra={"file": path.name, "cause": error.message})
    else:
        logger.info("container_created", extra={"container_id": manifest.id, "file": path.name})
