"""Found a container: its row, its first space, and that space's collection."""

from __future__ import annotations

import hashlib
import logging
from typing import Protocol

from latent_core.db import audit, containers
from latent_core.db.connection import Connection, Database
from latent_core.db.containers import Container
from latent_core.db.transfer import import_rows
from latent_core.domain.errors import Conflict, Invalid, LatentError
from latent_core.domain.manifest.model import Manifest
from latent_core.domain.refresh import SpaceState
from latent_core.ingest.delete import delete_container
from latent_core.models.embedding.port import EmbeddingModel
from latent_core.runtime.failpoint import failpoint
from latent_core.vectors.port import CollectionLayout, VectorIndex

logger = logging.getLogger(__name__)
OURS = "c_"
"""Begins the names of our collections."""


class ModelLookup(Protocol):
    """Tells which model a manifest's embedder is; ``Invalid`` names what the manifest lacks."""

    def model_of(self, manifest: Manifest) -> EmbeddingModel: ...


def etag(manifest: Manifest) -> str:
    """Version of a manifest: the same content has the same one."""
    return hashlib.sha256(manifest.model_dump_json().encode()).hexdigest()[:32]


async def create(
    db: Database,
    index: VectorIndex,
    models: ModelLookup,
    manifest: Manifest,
    *,
    principal: str,
    request_id: str | None,
) -> Container:
    """Make the container; ``Conflict`` when its id is taken. All of it, or (the engine refuses) nothing."""
    model = models.model_of(manifest)
    async with db.transaction() as conn:
        if not await containers.insert(conn, manifest, etag(manifest)):
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
        raise RuntimeError(f"container {manifest.id} is not there after its creation")
    failpoint("create.before_collection")
    try:
        await index.create_collection(
            container.space.collection(), container.space.dims, layout_of(manifest)
        )
        failpoint("create.after_collection")
    except LatentError:
        # Without its collection it would take nothing in before the next start.
        async with db.transaction() as conn:
            await delete_container(conn, container.id, principal=principal)
        raise
    return container


async def ensure_collections(db: Database, index: VectorIndex, *, alone: bool) -> None:
    """Make the collections that a crash between the two stores left unmade.

    Those that nobody owns are dropped if we are ``alone`` with the engine; on a server they may be somebody else's,
    and a start with the wrong database must cost nothing: ``latent doctor`` names them.
    """
    # Listed before the rows are read: what another process makes meanwhile has its row, and is not dropped.
    listed = await index.collections()
    async with db.transaction() as conn:
        there = {c.id: c.manifest for c in await containers.all_(conn)}
        spaces = await containers.all_spaces(conn)
    owned = {s.collection() for s in spaces}
    for space in spaces:
        if space.container_id in there and space.state is not SpaceState.DROPPING:
            layout = layout_of(there[space.container_id])
            await index.create_collection(space.collection(), space.dims, layout)
    strange = [name for name in listed if name.startswith(OURS) and name not in owned]
    if strange and not alone:
        logger.warning("collections_of_nobody", extra={"collections": strange})
        return
    for name in strange:
        await index.drop_collection(name)


def layout_of(manifest: Manifest) -> CollectionLayout:
    """How a server is to keep the container's collections."""
    vector_settings = manifest.vectors
    return CollectionLayout(
        vector_settings.quantization, vector_settings.shards, vector_settings.replicas
    )


def check_change(current: Container, manifest: Manifest) -> None:
    """Refuse a change that the stored vectors would not survive, with what to do instead."""
    old = current.manifest
    if manifest.id != current.id:
        raise Invalid(
            f"the manifest's id is '{manifest.id}', not '{current.id}': an id is for ever"
        )
    for key in ("embedder", "embedder_version", "dims"):
        if getattr(manifest, key) != getattr(old, key):
            raise Conflict(
                f"{key} decides the stored vectors and is not changed by apply: "
                f"`latent refresh {current.id} --strategy parallel --to {_target(manifest)}` changes it",
                key=key,
            )


def _target(manifest: Manifest) -> str:
    """The embedder as the command takes it."""
    dims = f" --dims {manifest.dims}" if manifest.dims is not None else ""
    version = f" --version {manifest.embedder_version}" if manifest.embedder_version else ""
    return f"{manifest.embedder}{version}{dims}"


async def check_gone(conn: Connection, container_id: str) -> None:
    """``Conflict`` when what a job is about to remove is there again: restored, or being restored."""
    builder = await import_rows.founder(conn, container_id)
    if builder is not None or await containers.is_there(conn, container_id):
        raise Conflict(
            f"container '{container_id}' was made again since its deletion was asked for; nothing of it is removed"
        )


async def taken_id(conn: Connection, container_id: str) -> Conflict:
    """Why a container of that id cannot be made."""
    builder = await import_rows.founder(conn, container_id)
    if builder is not None:
        return Conflict(
            f"container '{container_id}' is being made by job {builder}: wait for it, or cancel it",
            job_id=builder,
        )
    if await containers.is_tombstoned(conn, container_id):
        return Conflict(
            f"container '{container_id}' is still being deleted; try again when its job is done"
        )
    return Conflict(f"container '{container_id}' exists already; change it with apply")
