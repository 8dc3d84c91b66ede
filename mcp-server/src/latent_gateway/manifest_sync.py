"""At start, validate every manifest in the folder and create missing containers (DESIGN §5), except deleted ones.

Afterwards the database owns the manifest: a file that differs is reported with the command that applies it. Also
writes the files of new containers and loads local models.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import yaml

from latent_core.db import audit, containers
from latent_core.domain.errors import Invalid, LatentError, OutOfSpace, TimedOut, Unavailable
from latent_core.domain.manifest.model import Manifest, check_offered
from latent_core.domain.manifest.yaml_reader import load_manifest
from latent_core.ingest import containers as founding
from latent_core.stack import Stack
from latent_gateway.auth.principal import OWNER
from latent_gateway.manifest_files import compare, scan_folder

logger = logging.getLogger(__name__)


async def sync_manifests(stack: Stack, manifests: Sequence[tuple[Path, Manifest]]) -> None:
    """Create missing containers of the folder's manifests, until a service is not available: each of a thousand would
    wait for it."""
    async with stack.db.transaction() as conn:
        known = await containers.etags(conn)
        deleted = await audit.deleted(conn, [m.id for _, m in manifests if m.id not in known])
    unavailable: LatentError | None = None
    postponed: list[str] = []
    changed: list[tuple[Path, Manifest]] = []
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
            if unavailable is not None:
                postponed.append(path.name)
                continue
            unavailable = await _create(stack, path, manifest)
        elif founding.etag(manifest) != known[manifest.id]:
            changed.append((path, manifest))
    await _tell_differences(stack, changed)
    if unavailable is not None and postponed:
        logger.warning(
            "manifests_not_applied",
            extra={
                "files": postponed,
                "cause": unavailable.message,
                "remedy": "restart the gateway when the service is available, or: latent container create --file FILE",
            },
        )


async def _tell_differences(stack: Stack, files: Sequence[tuple[Path, Manifest]]) -> None:
    """Log the files that say something else than what is in force."""
    ids = [manifest.id for _, manifest in files]
    async with stack.db.reading() as conn:
        found = await containers.find(conn, ids)
        switched = await audit.last_switched(conn, ids)
    for path, manifest in files:
        container = found.get(manifest.id)
        if container is None:
            continue
        difference = compare(path, manifest, container, stack.blobs, switched.get(manifest.id))
        if difference is not None:
            logger.warning(
                "manifest_differs",
                extra={
                    "container_id": manifest.id,
                    "file": path.name,
                    "keys": difference.keys,
                    "cause": difference.refused,
                    "remedy": difference.remedy,
                },
            )


def read_folder(folder: Path) -> list[tuple[Path, Manifest]]:
    """All manifests of a folder. ``Invalid`` names file, line and key of an error, or two files with the same id."""
    found = scan_folder(folder)
    for cause in found.invalid.values():
        raise Invalid(cause)
    return found.manifests


async def _create(stack: Stack, path: Path, manifest: Manifest) -> LatentError | None:
    """Create the container. Returns the error of a service that is not available for others either."""
    try:
        for issue in check_offered(manifest, stack.settings.blob_bucket):
            logger.warning(
                "manifest_of_elsewhere", extra={"file": path.name, "cause": issue.message}
            )
        stack.rerankers.check(manifest.retrieval.rerank.provider)
        stack.language_models.check(manifest)
        await founding.create(
            stack.db,
            stack.vectors,
            stack.blobs,
            stack.embedders,
            manifest,
            principal=OWNER,
            request_id=None,
        )
    except LatentError as error:
        logger.warning("manifest_not_applied", extra={"file": path.name, "cause": error.message})
        # A setting that is missing may concern this container only.
        waits = isinstance(error, TimedOut | Unavailable) and error.transient
        return error if waits else None
    logger.info("container_created", extra={"container_id": manifest.id, "file": path.name})
    return None


async def write_files(folder: Path, manifest: Manifest, source: str | None = None) -> list[str]:
    """Write the manifest unless its file has the same content; returns the written names. ``source``: its YAML with the
    comments of its author."""
    try:
        return await asyncio.to_thread(_write, folder, manifest, source)
    except OSError as exc:
        raise OutOfSpace(
            f"the container exists, but its manifest could not be written: {exc.strerror}"
        ) from exc


def _write(folder: Path, manifest: Manifest, source: str | None) -> list[str]:
    name = f"{manifest.id}.yaml"
    if _says(folder / name, manifest):
        return []
    _write_whole(folder / name, manifest_text(manifest) if source is None else source)
    return [name]


def manifest_text(manifest: Manifest) -> str:
    """The keys that differ from the defaults, as YAML."""
    shown = manifest.model_dump(mode="json", exclude_defaults=True)
    return yaml.safe_dump({"id": manifest.id, **shown}, sort_keys=False, allow_unicode=True)


def _says(path: Path, manifest: Manifest) -> bool:
    """Whether the file has this manifest already: then its comments are kept."""
    try:
        return load_manifest(path) == manifest
    except LatentError:
        return False


def _write_whole(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(content, encoding="utf-8")
    partial.replace(path)
