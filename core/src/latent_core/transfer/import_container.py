"""The target container of an import: created behind a tombstone, or held while a step merges."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol

from latent_core.db import audit, containers
from latent_core.db.connection import Connection
from latent_core.db.containers import Container
from latent_core.db.transfer import import_rows as rows
from latent_core.domain.errors import Conflict, Invalid, NotFound
from latent_core.domain.manifest.model import Manifest
from latent_core.ingest.containers import etag, taken_id
from latent_core.models.embedding.port import EmbeddingModel
from latent_core.wire.containers import ContainerState


class ArchiveModels(Protocol):
    """Finds the model of a manifest's embedder."""

    async def measure(self, manifest: Manifest) -> None: ...

    def model_of(self, manifest: Manifest) -> EmbeddingModel: ...


async def with_model(
    models: ArchiveModels, manifest: Manifest
) -> tuple[Manifest, EmbeddingModel, list[str]]:
    """The manifest with an available model, that model, and the pins that were dropped for it.

    A refresh pins the version of the installed model. A later release with another version must still restore the
    archive, so it drops the pins and embeds all texts again. An unknown model name is ``Invalid``.
    """
    await models.measure(manifest)
    try:
        return manifest, models.model_of(manifest), []
    except Invalid:
        unpinned = manifest.model_copy(update={"embedder_version": None, "dims": None})
        await models.measure(unpinned)
        model = models.model_of(unpinned)
        given_pins = {"embedder_version": manifest.embedder_version, "dims": manifest.dims}
        pins = [f"{key} {pinned}" for key, pinned in given_pins.items() if pinned is not None]
        there = f"{model.embedder} is {model.version} with {model.dims} dimensions; all texts were embedded again"
        return unpinned, model, [f"{' and '.join(pins)} ({there})"]


async def found(
    conn: Connection,
    manifest: Manifest,
    model: EmbeddingModel,
    bucket: str,
    *,
    job_id: int,
    principal: str,
) -> None:
    """Insert the container; only this job makes it visible. ``Conflict`` if the id is taken."""
    container_id = manifest.id
    if not await containers.insert(conn, manifest, etag(manifest), bucket):
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
    """The new container, which is not visible yet."""
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
        bucket=await containers.bucket(conn, manifest.id) or "",
    )


async def hold_open(conn: Connection, container_id: str) -> None:
    """Hold the target of a merge; ``NotFound`` if it was deleted, ``Conflict`` unless it is active."""
    state = await containers.hold(conn, container_id)
    if state is None:
        raise gone(container_id)
    if state is not ContainerState.ACTIVE:
        raise Conflict(
            f"Container '{container_id}' is {state.value} and accepts no documents. Make it active, then requeue the job."
        )


def gone(container_id: str) -> NotFound:
    return NotFound(
        f"Container '{container_id}' was deleted while an archive was imported into it."
    )
