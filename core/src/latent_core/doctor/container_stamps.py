"""Check values that only the container's own rows hold: vector dimensions, etag and embedder of its manifest, and the
languages for analysing queries."""

from __future__ import annotations

from contextlib import suppress

from latent_core.db import containers
from latent_core.db.connection import Connection, Database
from latent_core.db.containers import Container
from latent_core.db.doctor import checks
from latent_core.domain.errors import LatentError
from latent_core.domain.findings import Remedy, StoreDifference
from latent_core.domain.manifest.model import Manifest
from latent_core.ingest.containers import etag
from latent_core.vectors.port import VectorIndex


async def differences(
    db: Database, index: VectorIndex, container: Container
) -> list[StoreDifference]:
    """Rows that contradict what is stored, or one another."""
    dims = await _stored_dims(index, container)
    async with db.transaction() as conn:
        wrong = await _wrong_etag(conn, container.id)
        lost = await checks.lost_languages(conn, container.id)
    found: list[tuple[str, str]] = []
    if dims not in (None, container.space.dims):
        found.append(
            (
                "space",
                f"its row says {container.space.dims} dimensions, but its vectors have {dims}",
            )
        )
    if wrong is not None:
        found.append(("manifest", f"its etag is {wrong[0]}, but its content has {wrong[1]}"))
    if lost:
        found.append(
            (
                "languages",
                f"documents in {', '.join(lost)} are live, but queries are not analysed in these languages",
            )
        )
    found_differences = [
        StoreDifference(kind=kind, object=container.id, message=message, repair=Remedy.REBUILD)
        for kind, message in found
    ]
    return found_differences + _named_otherwise(container, dims or container.space.dims)


async def mend(db: Database, index: VectorIndex, container: Container) -> None:
    """Correct the rows. Reads again first, and changes nothing that is already correct."""
    dims = await _stored_dims(index, container)
    async with db.transaction() as conn:
        if await containers.hold(conn, container.id) is None:
            return
        if dims is not None:
            await checks.set_dims(conn, container.id, container.space.collection_id, dims)
        wrong = await _wrong_etag(conn, container.id)
        if wrong is not None:
            await checks.set_etag(conn, container.id, *wrong)
        lost = await checks.lost_languages(conn, container.id)
        await containers.add_languages(conn, container.id, lost)


async def _stored_dims(index: VectorIndex, container: Container) -> int | None:
    """Dimensions of the stored vectors; None if there are none or they cannot be read."""
    collection = container.space.collection()
    with suppress(LatentError):  # reported by the check of the vectors
        for point in await index.scroll(collection, after=None, limit=1):
            for vector in (await index.vectors(collection, [point.id])).values():
                return len(vector)
    return None


async def _wrong_etag(conn: Connection, container_id: str) -> tuple[str, str] | None:
    """The stored etag and that of the content, if they differ. A manifest of another release, with other keys, cannot
    be compared."""
    row = await checks.manifest(conn, container_id)
    if row is None:
        return None
    manifest = Manifest.model_validate(row["manifest"])
    if row["etag"] == etag(manifest) or manifest.model_dump(mode="json") != row["manifest"]:
        return None
    return row["etag"], etag(manifest)


def _named_otherwise(container: Container, dims: int) -> list[StoreDifference]:
    """Manifest keys that name another model than the live space."""
    space, manifest = container.space, container.manifest
    pairs = (
        ("embedder", manifest.embedder, space.embedder),
        ("embedder_version", manifest.embedder_version, space.version),
        ("dims", manifest.dims, space.embedder_dims or dims),
    )
    wrong = [
        f"{key} {named}, but it is {is_}" for key, named, is_ in pairs if named not in (None, is_)
    ]
    if not wrong:
        return []
    message = (
        f"the manifest names {'; '.join(wrong)} in the live space. "
        f"Run `latent refresh {container.id} --strategy parallel --to {manifest.embedder}` to switch to it."
    )
    return [StoreDifference(kind="manifest", object=container.id, message=message)]
