"""The target container of an import: created behind a tombstone, or held while a step merges."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Protocol

from latent_core.db import audit, containers
from latent_core.db.connection import Connection
from latent_core.db.containers import Container
from latent_core.db.transfer import import_rows as rows
from latent_core.domain.errors import Conflict, Invalid, NotFound
from latent_core.domain.manifest.model import LOCAL_FOLDER, Manifest, is_installable
from latent_core.ingest.containers import etag, taken_id
from latent_core.models.embedding.port import EmbeddingModel
from latent_core.transfer.records import Header, SpaceRecord
from latent_core.wire.containers import ContainerState

_ADAPTED: Final = re.compile(r"\+drift\d+$")
"""At the end of the version of vectors that an adapter maps."""
_MISSING: Final = (
    "the vectors of the archive were taken, but the model that made them is not here, so only words are searched until it"
    " is: {cause}"
)


class ArchiveModels(Protocol):
    """Finds the model of a manifest's embedder."""

    async def measure(self, manifest: Manifest) -> None: ...

    def model_of(self, manifest: Manifest) -> EmbeddingModel: ...


@dataclass(frozen=True, slots=True)
class ImportModel:
    """What a new container's space is made by, and the manifest that names it."""

    manifest: Manifest
    space: SpaceRecord
    dropped: list[str] = field(default_factory=list)
    """Pins of the manifest that this installation cannot keep."""
    note: str | None = None


async def with_model(models: ArchiveModels, manifest: Manifest, header: Header) -> ImportModel:
    """The model that made the archive, in exactly its version.

    A model that a person installs may be missing: vectors of the archive are taken all the same, and it is named. It is
    ``Invalid`` if texts would have to be embedded, as is an unknown model name. A built-in model has one version per
    release, and a later release must still restore the archive: it drops the pins and embeds all texts again.
    """
    space = header.space
    version, is_whole = _ADAPTED.sub("", space.version), not _ADAPTED.search(space.version)
    exact = manifest
    if manifest.embedder == space.embedder:
        dims = space.dims if is_whole else manifest.dims
        exact = manifest.model_copy(update={"embedder_version": version, "dims": dims})
    await models.measure(exact)
    try:
        return ImportModel(manifest, _record(await asyncio.to_thread(models.model_of, exact)))
    except Invalid as exc:
        if _is_installed_by_a_person(manifest.embedder):
            if not (header.vectors and is_whole and exact is not manifest):
                raise
            return ImportModel(manifest, space, note=_MISSING.format(cause=exc.message))
    return await _with_present(models, manifest, space)


def _is_installed_by_a_person(embedder: str) -> bool:
    return is_installable(embedder) or embedder.startswith(LOCAL_FOLDER)


async def _with_present(
    models: ArchiveModels, manifest: Manifest, archived: SpaceRecord
) -> ImportModel:
    unpinned = manifest.model_copy(update={"embedder_version": None, "dims": None})
    await models.measure(unpinned)
    model = await asyncio.to_thread(models.model_of, unpinned)
    there = f"{model.embedder} is {model.version} with {model.dims} dimensions; all texts were embedded again"
    given_pins = {"embedder_version": manifest.embedder_version, "dims": manifest.dims}
    pins = [f"{key} {pinned}" for key, pinned in given_pins.items() if pinned is not None]
    if pins:
        return ImportModel(unpinned, _record(model), [f"{' and '.join(pins)} ({there})"])
    note = f"the archive was made by {archived.embedder} {archived.version}, but here {there}"
    return ImportModel(unpinned, _record(model), note=note)


def _record(model: EmbeddingModel) -> SpaceRecord:
    return SpaceRecord(embedder=model.embedder, version=model.version, dims=model.dims)


async def found(
    conn: Connection,
    manifest: Manifest,
    space: SpaceRecord,
    bucket: str,
    *,
    job_id: int,
    principal: str,
) -> None:
    """Insert the container; only this job makes it visible. ``Conflict`` if the id is taken."""
    container_id = manifest.id
    if not await containers.insert(conn, manifest, etag(manifest), bucket):
        raise await taken_id(conn, container_id)
    await containers.insert_space(conn, container_id, space.embedder, space.version, space.dims)
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
