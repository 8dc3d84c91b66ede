"""Doctor: compare rows, points, postings and blobs, and report every difference (DESIGN §7.6).

Runs on a live system in bounded pages, at most half of the time. Work in progress is no difference: a document with an
open ingest or purge, or a container during a merge. A suspected difference is read again before it is reported.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from latent_core.blobs.port import BlobStores
from latent_core.bm25.differences import differences
from latent_core.db import containers, placement
from latent_core.db.connection import Database
from latent_core.db.containers import Container, Space
from latent_core.db.doctor import checks
from latent_core.db.doctor.checks import PendingRow, WrongCountRow
from latent_core.db.placement import CollectionUsage
from latent_core.db.spaces import space_points
from latent_core.doctor import container_stamps
from latent_core.doctor.blobs import BlobCheck
from latent_core.doctor.context import MAX_DIFFERENCES, DoctorThrottle, first_of
from latent_core.doctor.points import PointCheck
from latent_core.doctor.reingest import is_web
from latent_core.domain import versions
from latent_core.domain.chunk import SourceType
from latent_core.domain.errors import LatentError, NotFound
from latent_core.domain.findings import ContainerReport, DoctorReport, Remedy, StoreDifference
from latent_core.domain.ids import SHARED
from latent_core.ingest.containers import OURS
from latent_core.vectors.port import VectorIndex
from latent_core.wire.refresh import SpaceState

__all__ = ["Doctor", "DoctorReport", "StoreDifference"]


class Doctor:
    def __init__(
        self,
        db: Database,
        index: VectorIndex,
        blobs: BlobStores,
        *,
        grace_seconds: float,
        deep: bool = False,
        alone: bool = False,
    ) -> None:
        """``deep``: bytes are read and hashed, not only measured. ``alone``: no other installation keeps collections
        in this vector engine."""
        self._db = db
        self._index = index
        self._grace = grace_seconds
        self._alone = alone
        pace = DoctorThrottle()
        self._points = PointCheck(db, index, pace)
        self._blobs = BlobCheck(db, blobs, pace, deep=deep)

    async def examine(self, selected: list[str] | None) -> DoctorReport:
        """Compare all stores, for the named containers or for all."""
        async with self._db.transaction() as conn:
            found = {c.id: c for c in await containers.all_(conn)}
        report = DoctorReport()
        for container_id in sorted(found if selected is None else set(selected) & set(found)):
            one = await self._if_there(found[container_id])
            if one is not None:
                report.containers[container_id] = one
        if selected is None:
            blobs = [d async for d in self._blobs.without_purpose(self._grace)]
            report.stores = [d for d in blobs if not _is_note(d)]
            report.stores += await first_of(self._blobs.of_archives(None))
            found_there = await self._collections()
            report.stores += [d for d in found_there if d.repair is Remedy.DROP]
            report.notes = [d for d in found_there if d.repair is not Remedy.DROP]
            report.notes += [d for d in blobs if _is_note(d)][:MAX_DIFFERENCES]
            report.notes += await self._tokens()
            async with self._db.transaction() as conn:
                report.checks |= _of_usage(await placement.usage(conn))
        report.clean = not report.stores and not any(
            c.differences for c in report.containers.values()
        )
        return report

    async def _if_there(self, container: Container) -> ContainerReport | None:
        """The report, or None if the container was deleted meanwhile."""
        try:
            return await self._container(container)
        except NotFound as error:
            async with self._db.transaction() as conn:
                if await containers.get(conn, container.id) is None:
                    return None
            gone = StoreDifference(kind="vectors", object=container.id, message=error.message)
            return ContainerReport(differences=[gone])

    async def _container(self, container: Container) -> ContainerReport:
        report = ContainerReport()
        async with self._db.transaction() as conn:
            report.counts = await checks.counts(conn, container.id, container.space.collection_id)
        try:
            report.counts["points"] = await self._index.count(container.space.collection())
        except LatentError as error:
            report.differences.append(
                StoreDifference(kind="vectors", object=container.id, message=error.message)
            )
        else:
            report.differences += await first_of(self._points.strays(container))
            report.differences += await first_of(self._points.missing(container))
        report.differences += await container_stamps.differences(self._db, self._index, container)
        report.differences += await first_of(self._rows(container.id))
        report.differences += await first_of(self._keywords(container.id))
        report.differences += await first_of(self._blobs.of_documents(container.id))
        report.differences += await first_of(self._blobs.of_archives(container.id))
        report.notes += await self._dead_letters(container.id)
        report.notes += await self._other_spaces(container)
        report.notes += await self._outdated(container)
        return report

    async def _other_spaces(self, container: Container) -> list[StoreDifference]:
        """Notes on spaces other than the live one: the number of documents without points, not each point.

        Refresh and rollback check such a space for missing points themselves.
        """
        async with self._db.transaction() as conn:
            others = [
                space
                for space in await containers.spaces(conn, container.id)
                if space.state in (SpaceState.BUILDING, SpaceState.RETIRED)
                and space.collection_id != container.space.collection_id
            ]
            lacking = {
                space.id: await space_points.missing(
                    conn, container.id, space.collection_id, limit=MAX_DIFFERENCES
                )
                for space in others
            }
        return [await self._note(space, len(lacking[space.id])) for space in others]

    async def _note(self, space: Space, lacking: int) -> StoreDifference:
        try:
            points = f"{await self._index.count(space.collection())} points"
        except LatentError as error:
            points = f"points not countable ({error.message})"
        more = " or more" if lacking == MAX_DIFFERENCES else ""
        return StoreDifference(
            kind="space",
            object=space.collection(),
            message=f"{space.state.value} space of {space.embedder} {space.version}: {points}; {lacking}{more} live "
            "documents have no points in it. Its points are not compared one by one, because it is not the live space.",
        )

    async def _outdated(self, container: Container) -> list[StoreDifference]:
        """A note on documents that would be read in another way today."""
        now = versions.recipe(container.manifest)
        async with self._db.transaction() as conn:
            count = await checks.outdated(
                conn, container.id, code=now + versions.ending(SourceType.CODE), other=now
            )
        if not count:
            return []
        message = (
            f"{count} document{'s were' if count > 1 else ' was'} read by an older version of the parsers, or with other "
            f"settings of the manifest. Run `latent refresh {container.id} --strategy reparse` to read all again."
        )
        return [StoreDifference(kind="recipe", object=container.id, message=message)]

    async def _dead_letters(self, container_id: str) -> list[StoreDifference]:
        async with self._db.transaction() as conn:
            rows = await checks.dead_letters(conn, container_id, MAX_DIFFERENCES)
        return [
            StoreDifference(
                kind="job",
                object=str(row.id),
                message=f"{row.kind} failed: {row.cause or 'unknown cause'}. "
                f"Run `latent jobs requeue {row.id}` to try again.",
                doc_id=row.doc_id,
            )
            for row in rows
        ]

    async def _rows(self, container_id: str) -> AsyncIterator[StoreDifference]:
        async with self._db.transaction() as conn:
            pending = await checks.pending_without_job(conn, container_id, MAX_DIFFERENCES)
            wrong = await checks.wrong_counts(conn, container_id, MAX_DIFFERENCES)
            dead = await checks.dead_rows(conn, container_id, MAX_DIFFERENCES)
            moving = await checks.with_open_work(conn, container_id, [r.doc_id for r in dead])
            drifted = await checks.space_drift(conn, container_id)
        if drifted is not None:
            yield StoreDifference(
                kind="state",
                object=container_id,
                message=f"the state of its live space is '{drifted}', not 'live'",
                repair=Remedy.REBUILD,
            )
        for row in pending:
            can_be_made = row.has_original or is_web(row.uri)
            yield _document(
                row, "waits without a job", Remedy.REINGEST if can_be_made else Remedy.DROP
            )
        for counted in wrong:
            message = f"should have {counted.live_chunks} chunks and has {counted.found}"
            yield _document(counted, message, Remedy.REINGEST)
        for unused in dead:
            if unused.doc_id not in moving:
                yield StoreDifference(
                    kind="chunk" if unused.chunks else "row",
                    object=f"{unused.doc_id}/{unused.generation}",
                    message=f"{unused.chunks} chunks, {unused.pages} pages and {unused.refs} references to blobs of a "
                    "generation that is not live, and no purge is queued",
                    repair=Remedy.DROP,
                    doc_id=unused.doc_id,
                    generation=unused.generation,
                )

    async def _keywords(self, container_id: str) -> AsyncIterator[StoreDifference]:
        for found in await differences(self._db, container_id, limit=MAX_DIFFERENCES):
            yield StoreDifference(
                kind="keywords",
                object=found.object,
                message=found.message,
                repair=Remedy.REBUILD,
            )

    async def _collections(self) -> list[StoreDifference]:
        """Collections without an owner. On a server only collections that this database created are dropped: others may
        belong to rows that this database has lost."""
        names = (
            await self._index.collections()
        )  # listed before their rows are read, since rows are created first
        async with self._db.transaction() as conn:
            owned = {s.collection() for s in await containers.all_spaces(conn)}
            made = await containers.collections_made(conn)
        strange = [name for name in names if name.startswith((OURS, SHARED)) and name not in owned]
        return [
            StoreDifference(
                kind="collection",
                object=name,
                message="belongs to no container",
                repair=Remedy.DROP,
            )
            if self._alone or name in made
            else StoreDifference(
                kind="collection",
                object=name,
                message="is not known to this database and is not dropped: it may belong to a container that was created "
                "after the restored dump. If it does not, drop it manually.",
            )
            for name in strange
        ]

    async def _tokens(self) -> list[StoreDifference]:
        """Tokens for missing containers: a new container with that name becomes readable by them. Only a note, since a
        token may be created before its container."""
        async with self._db.transaction() as conn:
            rows = await checks.dangling_tokens(conn, MAX_DIFFERENCES)
        return [
            StoreDifference(
                kind="token",
                object=str(row.id),
                message=f"'{row.name}' of {row.principal} grants access to {', '.join(row.gone)}, which does not exist. "
                f"Run `latent token revoke {row.id}` unless it will be created.",
            )
            for row in rows
        ]


def _is_note(blob: StoreDifference) -> bool:
    """Bytes that an adopted dump may lack. A bucket that cannot be examined is a difference."""
    return blob.kind == "blob" and blob.repair is Remedy.NONE


def _of_usage(usage: CollectionUsage) -> dict[str, str | bool]:
    """How many of the collections that the server can hold are in use; nothing for the embedded engine."""
    if usage.bound is None:
        return {}
    text = f"{usage.own} of {usage.bound} (LLC_QDRANT_COLLECTIONS)"
    if usage.in_shared:
        text += (
            f"; {usage.in_shared} embedding spaces of small containers share {usage.shared} more"
        )
    return {"vector_collections": text}


def _document(row: PendingRow | WrongCountRow, message: str, repair: Remedy) -> StoreDifference:
    return StoreDifference(
        kind="document",
        object=str(row.id),
        message=f"{row.uri} {message}",
        repair=repair,
        doc_id=row.id,
    )
