"""The manifest folder compared with the manifests in force, which the database owns (DESIGN §5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from latent_core.blobs.port import BlobStores
from latent_core.db.containers import Container
from latent_core.domain.errors import Invalid, LatentError
from latent_core.domain.findings import StoreDifference
from latent_core.domain.manifest.model import Manifest
from latent_core.domain.manifest.yaml_reader import load_manifest
from latent_core.ingest.containers import EMBEDDER_KEYS, check_change, completed, in_force
from latent_core.stack import Stack

MAX_MANIFESTS: Final = 1000


@dataclass(frozen=True, slots=True)
class FolderContents:
    """The manifests of a folder, and the files that are none."""

    manifests: list[tuple[Path, Manifest]]
    invalid: Mapping[str, str]
    """By file name, what is wrong."""


def scan_folder(folder: Path) -> FolderContents:
    """All manifests of a folder. Of two files with the same id, the second one is invalid."""
    files = sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])[:MAX_MANIFESTS]
    found: dict[str, tuple[Path, Manifest]] = {}
    invalid: dict[str, str] = {}
    for path in files:
        try:
            manifest = load_manifest(path)
        except Invalid as error:
            invalid[path.name] = error.message
            continue
        if manifest.id in found:
            first = found[manifest.id][0].name
            invalid[path.name] = f"{path.name} and {first} both describe container '{manifest.id}'"
        else:
            found[manifest.id] = (path, manifest)
    return FolderContents(list(found.values()), invalid)


@dataclass(frozen=True, slots=True)
class FileDifference:
    """How a file differs from the manifest in force."""

    keys: list[str]
    remedy: str
    refused: str | None = None
    """Why apply would refuse the file."""


def compare(
    path: Path,
    manifest: Manifest,
    container: Container,
    blobs: BlobStores,
    switched_at: datetime | None,
) -> FileDifference | None:
    """None if the file says what is in force. What it leaves open is as it is in force. A file that is older than the
    last switch of embedders (``switched_at``) names the former one, which is no difference."""
    stored = in_force(container)
    meant = in_force(container, completed(manifest, container))
    if switched_at is not None and _changed_at(path) < switched_at:
        meant = meant.model_copy(update={key: getattr(stored, key) for key in EMBEDDER_KEYS})
    keys = sorted(
        key for key in Manifest.model_fields if getattr(meant, key) != getattr(stored, key)
    )
    if not keys:
        return None
    try:
        check_change(container, meant, blobs)
    except LatentError as error:
        remedy = "correct the file: `latent container describe` shows what is in force"
        return FileDifference(keys, remedy, error.message)
    return FileDifference(keys, f"`latent container apply {path.name}`, or correct the file")


def _changed_at(path: Path) -> datetime:
    """When the file was written; a file that is gone counts as new."""
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError:
        return datetime.now(UTC)


def invalid_file(name: str, cause: str) -> StoreDifference:
    return StoreDifference(
        kind="manifest",
        object=name,
        message=f"the file is not applied: {cause}. Correct or remove it",
    )


def missing_container(stack: Stack, path: Path, manifest: Manifest) -> StoreDifference:
    """A file whose container was not created."""
    try:
        stack.embedders.model_of(manifest)
        cause = "the log of the gateway's start says why"
    except LatentError as error:
        cause = error.message
    return StoreDifference(
        kind="manifest",
        object=path.name,
        message=f"container '{manifest.id}' was not created: {cause}. "
        f"Run `latent container create --file {path.name}`, or remove the file",
    )
