"""The container that takes an archive in: founded behind a tombstone, or held while a step merges."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol

from latent_core.db import audit, containers
from latent_core.db.connection import Connection
from latent_core.db.containers import Container
from latent_core.db.transfer import import_rows as rows
from latent_core.domain.container import ContainerState
from latent_core.domain.errors import Conflict, Invalid, NotFound
from latent_core.domain.manifest.model import Manifest
from latent_core.ingest.containers import etag, taken_id
from latent_core.models.embedding.port import EmbeddingModel


class ModelLookup(Protocol):
    """Embedders by the names of manifests."""

    def model_of(self, manifest: Manifest) -> EmbeddingModel: ...


def with_model(
    models: ModelLookup, manifest: Manifest
) -> tuple[Manifest, EmbeddingModel, list[str]]:
    """The manifest with a model that is to be had here, that model, and what the manifest came without for it.

    A refresh pins the version of a model that is installed. A later release has another one, and must be able to
    restore what was saved before: it embeds anew. A model that is not known by its name is ``Invalid`` as ever.
    """
    try:
        return manifest, models.model_of(manifest), []
    except Invalid:
        unpinned = manifest.model_copy(update={"embedder_version": None, "dims": None})
        model = models.model_of(unpinned)
        given_pins = {"embedder_version": manifest.embedder_version, "dims": manifest.dims}
        pins = [f"{key} {pinned}" for key, pinned in given_pins.items() if pinned is not None]
        there = f"{model.embedder} is {model.version} with {model.dims} dimensions, all was embedded anew"
        return unpinned, model, [f"{' and '.join(pins)} ({there})"]


async def found(
    conn: Connection, manifest: Manifest, model: EmbeddingModel, *, job_id: int, principal: str
) -> None:
    """Insert the container that this job alone will make visible; ``Conflict`` when the id is taken."""
    container_id = manifest.id
    if not await containers.insert(conn, manifest, etag(manifest)):
        raise await taken_id(conn, container_id)
    await containers.insert_space(conn, container_id, model.embedder, model.version, model.dims)
    await containers.tombstone(conn, container_id)
    await rows.found(conn, container_id, job_id)
    await audit.note(
        conn,
        principal=principal,
        action="container.create",
        container_id=container_id,
        object_=f"import by job {job_id}",
        request_id=None,
    )


async def hidden(conn: Connection, manifest: Manifest) -> Container:
    """The container that is being built, which nobody else can see."""
    (space,) = await containers.spaces(conn, manifest.id)
    now = datetime.now(UTC)
    return Container(
        id=manifest.id,
        manifest=manifest,
        etag=etag(manifest),
        state=ContainerState.ACTIVE,
        space=space,
        languages=(),
        created_at=now,
        updated_at=now,
    )


async def hold_open(conn: Connection, container_id: str) -> None:
    """Hold a container that takes a merge; ``NotFound``, ``Conflict``."""
    state = await containers.hold(conn, container_id)
    if state is None:
        raise gone(container_id)
    if state is not ContainerState.ACTIVE:
        raise Conflict(
            f"container '{container_id}' is {state.value} and takes nothing in; make it active, then requeue the job"
        )


def gone(container_id: str) -> NotFound:
    return NotFound(f"container '{container_id}' was deleted while an archive was imported into it")
