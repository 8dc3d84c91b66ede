"""Found a container: its row, its first space, and that space's collection."""

from __future__ import annotations

import hashlib
from typing import Protocol

from latent_core.domain.errors import Conflict, Invalid, LatentError
from latent_core.domain.manifest import Manifest
from latent_core.embedding.port import EmbeddingModel
from latent_core.generations.delete import delete_container
from latent_core.registry import audit, containers
from latent_core.registry.connection import Connection, Database
from latent_core.registry.containers import Container
from latent_core.vectors.port import VectorIndex


class Models(Protocol):
    """Tells which model a manifest's embedder is; ``Invalid`` names what the manifest lacks."""

    def model_of(self, manifest: Manifest) -> EmbeddingModel: ...


def etag(manifest: Manifest) -> str:
    """Version of a manifest: the same content has the same one."""
    return hashlib.sha256(manifest.model_dump_json().encode()).hexdigest()[:32]


async def create(
    db: Database,
    index: VectorIndex,
    models: Models,
    manifest: Manifest,
    *,
    principal: str,
    request_id: str | None,
) -> Container:
    """Make the container; ``Conflict`` when its id is taken. All of it, or (the engine refuses) nothing."""
    model = models.model_of(manifest)
    async with db.transaction() as conn:
        if not await containers.insert(conn, manifest, etag(manifest)):
            raise await _taken(conn, manifest.id)
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
    try:
        await index.create_collection(container.space.collection(), container.space.dims)
    except LatentError:
        # Without its collection it would take nothing in before the next start.
        async with db.transaction() as conn:
            await delete_container(conn, container.id, principal=principal)
        raise
    return container


async def ensure_collections(db: Database, index: VectorIndex) -> None:
    """Make the collections that a crash between the two stores left unmade, and drop those that nobody owns."""
    async with db.transaction() as conn:
        spaces = [c.space for c in await containers.all_(conn)]
        owned = {s.collection() for s in await containers.all_spaces(conn)}
    for space in spaces:
        await index.create_collection(space.collection(), space.dims)
    for name in await index.collections():
        if name.startswith("c_") and name not in owned:
            await index.drop_collection(name)


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
                f"{key} decides the stored vectors and is not changed by apply: make a container with the new "
                f"{key} and ingest into it",
                key=key,
            )


async def _taken(conn: Connection, container_id: str) -> Conflict:
    if await containers.is_tombstoned(conn, container_id):
        return Conflict(
            f"container '{container_id}' is still being deleted; try again when its job is done"
        )
    return Conflict(f"container '{container_id}' exists already; change it with apply")
