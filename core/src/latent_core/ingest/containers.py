"""Create a container: its row, its first space, and that space's collection."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

from latent_core.blobs.port import BlobStores
from latent_core.db import audit, containers
from latent_core.db.blobs import blobs as blob_rows
from latent_core.db.connection import Connection, Database
from latent_core.db.containers import Container, Space
from latent_core.db.transfer import import_rows
from latent_core.domain.chunk import Modality
from latent_core.domain.errors import (
    Conflict,
    Invalid,
    LatentError,
    MarkerMismatch,
    ServiceUnreachable,
    TimedOut,
)
from latent_core.domain.ids import SHARED
from latent_core.domain.installation import MarkerPolicy
from latent_core.domain.manifest.model import Manifest, reads_images
from latent_core.ingest.delete import delete_container
from latent_core.models.embedding.port import EmbeddingModel
from latent_core.runtime.failpoint import failpoint
from latent_core.runtime.tasks import all_or_first_failure
from latent_core.vectors.port import CollectionLayout, VectorIndex
from latent_core.wire.refresh import SpaceState

logger = logging.getLogger(__name__)
OURS = "c_"
"""Prefix of our collection names."""
CONCURRENT_CHECKS = 8
"""Collections that a start checks at a time; a server may hold hundreds."""


class ModelLookup(Protocol):
    """Returns the model of a manifest's embedder; ``Invalid`` names what the manifest lacks."""

    async def measure(self, manifest: Manifest) -> None:
        """Ask a remote embedder for its dimensions if the manifest leaves them open, before ``model_of`` and outside of
        transactions."""
        ...

    def model_of(self, manifest: Manifest) -> EmbeddingModel:
        """Blocking."""
        ...

    def held(self, name: str) -> AbstractAsyncContextManager[None]:
        """Installed models of that name are not removed until the block ends."""
        ...


def etag(manifest: Manifest) -> str:
    """Version of a manifest: equal content has an equal etag."""
    return hashlib.sha256(manifest.model_dump_json().encode()).hexdigest()[:32]


async def create(
    db: Database,
    index: VectorIndex,
    blobs: BlobStores,
    models: ModelLookup,
    manifest: Manifest,
    *,
    principal: str,
    request_id: str | None,
) -> Container:
    """Create the container, or nothing if its bucket or the vector engine fails. ``Conflict`` if the id is taken."""
    await models.measure(manifest)
    async with models.held(manifest.embedder):
        model = await asyncio.to_thread(models.model_of, manifest)
        manifest = _with_modalities(manifest, reads_both=model.reads_images)
        container = await _inserted(db, blobs, manifest, model, principal, request_id)
    failpoint("create.before_collection")
    try:
        await index.create_collection(
            container.space.collection(), container.space.dims, layout_of(manifest)
        )
        failpoint("create.after_collection")
    except LatentError:
        # Without its collection the container would reject documents until the next start.
        async with db.transaction() as conn:
            await delete_container(conn, container.id, principal=principal)
        raise
    return container


async def _inserted(
    db: Database,
    blobs: BlobStores,
    manifest: Manifest,
    model: EmbeddingModel,
    principal: str,
    request_id: str | None,
) -> Container:
    async with db.transaction() as conn:
        if await containers.bucket(conn, manifest.id) is not None:
            raise await taken_id(conn, manifest.id)
    bucket = await prepare_bucket(db, blobs, manifest)
    async with db.transaction() as conn:
        if not await containers.insert(conn, manifest, etag(manifest), bucket):
            raise await taken_id(conn, manifest.id)
        await containers.insert_space(conn, manifest.id, model.embedder, model.version, model.dims)
        await audit.note(
            conn,
            principal=principal,
            action="container.create",
            container_id=manifest.id,
            object_=None,
            request_id=request_id,
        )
        container = await containers.get(conn, manifest.id)
    if container is None:
        raise RuntimeError(f"container {manifest.id} was not found after its creation")
    return container


def _with_modalities(manifest: Manifest, *, reads_both: bool) -> Manifest:
    """``manifest``, with text and image if it does not name its modalities and its embedder reads both."""
    if not reads_both or "modalities" in manifest.model_fields_set:
        return manifest
    return manifest.model_copy(update={"modalities": [Modality.TEXT, Modality.IMAGE]})


async def prepare_bucket(db: Database, blobs: BlobStores, manifest: Manifest) -> str:
    """The bucket of the manifest's container, with this installation's marker. A bucket that is in use is not
    created again: its loss is an error, as for LLC_S3_BUCKET."""
    bucket = blobs.bucket_of(manifest.storage.blobs.bucket)
    if bucket:
        async with db.transaction() as conn:
            used = bucket in await blob_rows.buckets(conn)
        await blobs.prepare(bucket, MarkerPolicy.REQUIRE if used else MarkerPolicy.CREATE)
    return bucket


async def ensure_collections(
    db: Database, index: VectorIndex, *, alone: bool
) -> dict[str, LatentError]:
    """Create the collections that are missing after a crash between the two stores. Returns the errors of single
    collections by name; ``MarkerMismatch``, ``ServiceUnreachable`` and ``TimedOut`` concern all and are raised.

    Collections without an owner are dropped only if we are ``alone`` with the engine. On a server they may belong to
    rows that the database has lost, and a start must not destroy data: ``latent doctor`` lists them.
    """
    # Listed before the rows are read: a collection that another process creates meanwhile has its row already.
    listed = await index.collections()
    async with db.transaction() as conn:
        spaces = await containers.all_spaces(conn)
        owned = {s.collection() for s in spaces}
        # A server adopts a changed layout; an embedded collection has none, and costs nothing until it is used.
        present = frozenset(listed) if alone else frozenset()
        wanting = [s for s in spaces if s.collection() not in present]
        there = await containers.find(conn, [s.container_id for s in wanting])
    concurrent = asyncio.Semaphore(CONCURRENT_CHECKS)
    failed: dict[str, LatentError] = {}

    async def ensure(space: Space) -> None:
        async with concurrent:
            layout = layout_of(there[space.container_id].manifest)
            try:
                await index.create_collection(space.collection(), space.dims, layout)
            except (MarkerMismatch, ServiceUnreachable, TimedOut):
                raise
            except LatentError as error:
                failed[space.collection()] = error

    await all_or_first_failure(
        ensure(space)
        for space in wanting
        if space.container_id in there and space.state is not SpaceState.DROPPING
    )
    strange = [name for name in listed if name.startswith((OURS, SHARED)) and name not in owned]
    if strange and not alone:
        logger.warning("unowned_collections", extra={"collections": strange})
        return failed
    for name in strange:
        await index.drop_collection(name)
    return failed


def layout_of(manifest: Manifest) -> CollectionLayout:
    """How a vector server stores the container's collections."""
    vector_settings = manifest.vectors
    return CollectionLayout(
        vector_settings.quantization, vector_settings.shards, vector_settings.replicas
    )


EMBEDDER_KEYS: Final = ("embedder", "embedder_version", "dims")
"""Keys of a manifest that only a refresh changes."""


def completed(manifest: Manifest, container: Container) -> Manifest:
    """``manifest`` with the version, dimensions and modalities that it leaves open, if it names the embedder in force."""
    stored = container.manifest
    if manifest.embedder != stored.embedder:
        return manifest
    space = container.space
    manifest = _with_modalities(manifest, reads_both=reads_images(space.embedder, space.version))
    open_keys = [key for key in EMBEDDER_KEYS if getattr(manifest, key) is None]
    return manifest.model_copy(update={key: getattr(stored, key) for key in open_keys})


def in_force(container: Container, manifest: Manifest | None = None) -> Manifest:
    """The stored manifest, or another one with the embedder of the live space, with that space's version and
    dimensions where it has none."""
    manifest = container.manifest if manifest is None else manifest
    space = container.space
    if manifest.embedder != space.embedder:
        return manifest
    values = {"embedder_version": space.version, "dims": space.embedder_dims or space.dims}
    missing = {key: value for key, value in values.items() if getattr(manifest, key) is None}
    return manifest.model_copy(update=missing)


def check_change(current: Container, manifest: Manifest, blobs: BlobStores) -> None:
    """Refuse a change that stored vectors or blobs would not follow, and name the commands for it."""
    old, new = in_force(current), in_force(current, manifest)
    if manifest.id != current.id:
        raise Invalid(
            f"The manifest's id is '{manifest.id}', not '{current.id}'. The id of a container cannot change."
        )
    for key in EMBEDDER_KEYS:
        if getattr(new, key) != getattr(old, key):
            raise Conflict(
                f"apply cannot change {key}, because the stored vectors depend on it. In force is {_values(old)}: write "
                f"that into the file to keep it, or run `latent refresh {current.id} --strategy parallel "
                f"--to {_target(manifest)}` to change it.",
                key=key,
            )
    named = manifest.storage.blobs.bucket
    if named != old.storage.blobs.bucket and blobs.bucket_of(named) != current.bucket:
        raise Conflict(
            "apply cannot change storage.blobs.bucket, because stored blobs are not moved. Create a container with the "
            f"new bucket, then run `latent export {current.id} --to FILE` and `latent import FILE --as NEW --merge`",
            key="storage.blobs.bucket",
        )


def _values(manifest: Manifest) -> str:
    """The embedder as keys of a manifest."""
    return ", ".join(f"{key}: {getattr(manifest, key)}" for key in EMBEDDER_KEYS)


def _target(manifest: Manifest) -> str:
    """The embedder as command-line options."""
    dims = f" --dims {manifest.dims}" if manifest.dims is not None else ""
    version = f" --version {manifest.embedder_version}" if manifest.embedder_version else ""
    return f"{manifest.embedder}{version}{dims}"


async def check_gone(conn: Connection, container_id: str) -> None:
    """``Conflict`` if the container that a job is about to remove was restored or is being restored."""
    builder = await import_rows.founder(conn, container_id)
    if builder is not None or await containers.is_there(conn, container_id):
        raise Conflict(
            f"Container '{container_id}' was created again after the request to delete it; nothing is removed."
        )


async def taken_id(conn: Connection, container_id: str) -> Conflict:
    """Why no container with that id can be created."""
    builder = await import_rows.founder(conn, container_id)
    if builder is not None:
        return Conflict(
            f"Job {builder} is creating container '{container_id}'. Wait for the job or cancel it.",
            job_id=str(builder),
        )
    if await containers.is_tombstoned(conn, container_id):
        return Conflict(
            f"Container '{container_id}' is still being deleted. Try again when its job has finished."
        )
    return Conflict(f"Container '{container_id}' already exists. Use apply to change it.")
