"""Doctor: compare rows, points, postings and blobs, and say every difference (DESIGN §7.6).

Runs on a live system in bounded pages, at most half of the time. What is in motion (a document with an
ingest or a purge open, a container that an archive is merged into) is not a difference; what looks like
one is read again before it is reported.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator
from typing import Any, Final
from uuid import UUID

import numpy as np

from latent_core.blobs.port import BlobStore
from latent_core.domain.archive import ArchiveKind
from latent_core.domain.errors import LatentError, NotFound
from latent_core.domain.findings import ContainerReport, Difference, DoctorReport, Remedy
from latent_core.domain.ids import PointId, Sha256, point_id
from latent_core.domain.refresh import SpaceState
from latent_core.generations import stamps
from latent_core.generations.containers import OURS
from latent_core.keywords.differences import differences
from latent_core.registry import (
    archives,
    checks,
    chunks,
    containers,
    space_points,
    stamps as stamp_rows,
)
from latent_core.registry.connection import Database
from latent_core.registry.containers import Container, Space
from latent_core.vectors.port import StoredPoint, VectorIndex

__all__ = ["Difference", "Doctor", "DoctorReport"]

PAGE: Final = 1000
IDS_A_CHECK: Final = 256
MOST_DIFFERENCES: Final = 200
"""A kind and container: enough to see what is wrong."""
LONGEST_REST_SECONDS: Final = 0.25
UNIT: Final = 0.01
"""How far from 1 the length of a stored vector may be."""


class Pace:
    """Keeps a long look from crowding out searches: after each step it rests as long as that took."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    async def rest(self) -> None:
        worked = time.monotonic() - self._since
        await asyncio.sleep(min(worked, LONGEST_REST_SECONDS))
        self._since = time.monotonic()


class Doctor:
    def __init__(
        self,
        db: Database,
        index: VectorIndex,
        blobs: BlobStore,
        *,
        grace_seconds: float,
        deep: bool = False,
        alone: bool = False,
    ) -> None:
        """``alone``: nobody else keeps collections in this vector engine."""
        self._db = db
        self._index = index
        self._blobs = blobs
        self._grace = grace_seconds
        self._deep = deep
        """Whether bytes are read and hashed, not only measured."""
        self._alone = alone
        self._pace = Pace()

    async def examine(self, wanted: list[str] | None) -> DoctorReport:
        """Compare all stores, for the named containers or for all."""
        async with self._db.transaction() as conn:
            found = {c.id: c for c in await containers.all_(conn)}
        report = DoctorReport()
        for container_id in sorted(found if wanted is None else set(wanted) & set(found)):
            one = await self._if_there(found[container_id])
            if one is not None:
                report.containers[container_id] = one
        if wanted is None:
            report.stores = [d async for d in self._stores()]
            report.stores += await _few(self._archives(None))
            found_there = await self._collections()
            report.stores += [d for d in found_there if d.repair is Remedy.DROP]
            report.notes = [d for d in found_there if d.repair is not Remedy.DROP]
            report.notes += await self._tokens()
        report.clean = not report.stores and not any(
            c.differences for c in report.containers.values()
        )
        return report

    async def _if_there(self, container: Container) -> ContainerReport | None:
        """None when it was deleted meanwhile: what is told of the others stays."""
        try:
            return await self._container(container)
        except NotFound as error:
            async with self._db.transaction() as conn:
                if await containers.get(conn, container.id) is None:
                    return None
            gone = Difference(kind="vectors", object=container.id, message=error.message)
            return ContainerReport(differences=[gone])

    async def _container(self, container: Container) -> ContainerReport:
        report = ContainerReport()
        async with self._db.transaction() as conn:
            report.counts = await checks.counts(conn, container.id, container.space.stored_in)
        try:
            report.counts["points"] = await self._index.count(container.space.collection())
        except LatentError as error:
            report.differences.append(
                Difference(kind="vectors", object=container.id, message=error.message)
            )
        else:
            report.differences += await _few(self._points(container))
            report.differences += await _few(self._missing_points(container))
        report.differences += await stamps.differences(self._db, self._index, container)
        report.differences += await _few(self._rows(container.id))
        report.differences += await _few(self._keywords(container.id))
        report.differences += await _few(self._refs(container.id))
        report.differences += await _few(self._archives(container.id))
        report.notes += await self._dead_letters(container.id)
        report.notes += await self._beside(container)
        return report

    async def _beside(self, container: Container) -> list[Difference]:
        """Spaces that are built or kept beside the one that is searched: what they lack, not each of their points.

        A refresh that builds one, and a rollback to one, look for what is missing themselves; nothing is found there.
        """
        async with self._db.transaction() as conn:
            others = [
                space
                for space in await containers.spaces(conn, container.id)
                if space.state in (SpaceState.BUILDING, SpaceState.RETIRED)
                and space.stored_in != container.space.stored_in
            ]
            lacking = {
                space.id: await space_points.missing(
                    conn, container.id, space.stored_in, limit=MOST_DIFFERENCES
                )
                for space in others
            }
        return [await self._note(space, len(lacking[space.id])) for space in others]

    async def _note(self, space: Space, lacking: int) -> Difference:
        try:
            points = f"{await self._index.count(space.collection())} points"
        except LatentError as error:
            points = f"no points that could be counted ({error.message})"
        more = " or more" if lacking == MOST_DIFFERENCES else ""
        return Difference(
            kind="space",
            object=space.collection(),
            message=f"{space.state.value} space of {space.embedder} {space.version}: {points}; {lacking}{more} live "
            "documents have none in it; its points are not compared one by one while another space is searched",
        )

    async def _dead_letters(self, container_id: str) -> list[Difference]:
        async with self._db.transaction() as conn:
            rows = await checks.dead_letters(conn, container_id, MOST_DIFFERENCES)
        return [
            Difference(
                kind="job",
                object=str(row["id"]),
                message=f"{row['kind']} failed: {row['cause'] or 'no cause is known'}; "
                f"`latent jobs requeue {row['id']}` tries again",
                doc_id=row["doc_id"],
            )
            for row in rows
        ]

    async def _rows(self, container_id: str) -> AsyncIterator[Difference]:
        async with self._db.transaction() as conn:
            pending = await checks.pending_without_job(conn, container_id, MOST_DIFFERENCES)
            wrong = await checks.wrong_counts(conn, container_id, MOST_DIFFERENCES)
            dead = await checks.dead_rows(conn, container_id, MOST_DIFFERENCES)
            moving = await checks.with_open_work(conn, container_id, [r["doc_id"] for r in dead])
            drifted = await checks.space_drift(conn, container_id)
        if drifted is not None:
            yield Difference(
                kind="state",
                object=container_id,
                message=f"the space it searches is marked '{drifted}', not 'live'",
                repair=Remedy.RESTAMP,
            )
        for row in pending:
            yield Difference(
                kind="document",
                object=str(row["id"]),
                message=f"{row['uri']} waits without a job",
                repair=Remedy.REBUILD if row["has_original"] else Remedy.FORGET,
                doc_id=row["id"],
            )
        for row in wrong:
            yield Difference(
                kind="document",
                object=str(row["id"]),
                message=f"{row['uri']} should have {row['live_chunks']} chunks and has {row['found']}",
                repair=Remedy.REBUILD,
                doc_id=row["id"],
            )
        for row in dead:
            if row["doc_id"] not in moving:
                yield Difference(
                    kind="chunk" if row["chunks"] else "row",
                    object=f"{row['doc_id']}/{row['generation']}",
                    message=f"{row['chunks']} chunks, {row['pages']} pages and {row['refs']} references to blobs of a "
                    "generation that is not live, and no purge is queued",
                    repair=Remedy.PURGE,
                    doc_id=row["doc_id"],
                    generation=row["generation"],
                )

    async def _points(self, container: Container) -> AsyncIterator[Difference]:
        """Points that no live chunk expects."""
        after: PointId | None = None
        collection = container.space.collection()
        while batch := await self._index.scroll(collection, after=after, limit=PAGE):
            after = batch[-1].id
            await self._pace.rest()
            strangers = await self._strangers(container, batch)
            if not strangers:
                continue
            async with self._db.transaction() as conn:
                moving = await checks.with_open_work(
                    conn, container.id, list({p.doc_id for p in strangers})
                )
            for point in await self._strangers(
                container, [p for p in strangers if p.doc_id not in moving]
            ):
                if await self._index.vectors(collection, [point.id]):
                    yield Difference(
                        kind="point",
                        object=str(point.id),
                        message=f"belongs to no live chunk (document {point.doc_id}, generation {point.generation})",
                        repair=Remedy.PURGE,
                        doc_id=point.doc_id,
                        generation=point.generation,
                    )

    async def _strangers(self, container: Container, batch: list[StoredPoint]) -> list[StoredPoint]:
        async with self._db.transaction() as conn:
            rows = await chunks.by_ord(
                conn,
                container.id,
                [p.ord for p in batch],
                stored_in=container.space.stored_in,
            )
        expected = {
            (point_id(r["id"], r["generation"], w), r["ord"])
            for r in rows
            for w in range(r["windows"])
        }
        return [p for p in batch if (p.id, p.ord) not in expected]

    async def _missing_points(self, container: Container) -> AsyncIterator[Difference]:
        """Live chunks whose vectors are not stored."""
        after = -1
        while True:
            async with self._db.transaction() as conn:
                rows = await chunks.points(
                    conn,
                    container.id,
                    after=after,
                    limit=PAGE,
                    stored_in=container.space.stored_in,
                )
            if not rows:
                return
            after = rows[-1]["ord"]
            await self._pace.rest()
            wanted = {
                point_id(r["id"], r["generation"], w): r for r in rows for w in range(r["windows"])
            }
            bad = await self._bad(container.space.collection(), list(wanted))
            for point, what in bad.items():
                row = wanted[point]
                async with self._db.transaction() as conn:
                    still_live = await chunks.by_ord(conn, container.id, [row["ord"]])
                if still_live:
                    yield Difference(
                        kind="point",
                        object=str(point),
                        message=f"chunk {row['ord']} is live and {what}",
                        repair=Remedy.REEMBED,
                        doc_id=row["doc_id"],
                        generation=row["generation"],
                    )

    async def _bad(self, collection: str, ids: list[PointId]) -> dict[PointId, str]:
        """Points that are absent, or whose vector is none."""
        bad: dict[PointId, str] = {}
        for start in range(0, len(ids), IDS_A_CHECK):
            asked = ids[start : start + IDS_A_CHECK]
            stored = await self._index.vectors(collection, asked)
            for one in asked:
                if one not in stored:
                    bad[one] = "has no vector"
                elif not abs(float(np.linalg.norm(stored[one])) - 1.0) < UNIT:  # nor for NaN
                    bad[one] = "has a vector that is not of unit length"
        return bad

    async def _keywords(self, container_id: str) -> AsyncIterator[Difference]:
        for found in await differences(self._db, container_id, limit=MOST_DIFFERENCES):
            yield Difference(
                kind="keywords",
                object=found.object,
                message=found.message,
                repair=Remedy.REINDEX,
            )

    async def _refs(self, container_id: str) -> AsyncIterator[Difference]:
        """References of live documents to blobs that are not there, or not whole."""
        after = (UUID(int=0), "", 0)
        while True:
            async with self._db.transaction() as conn:
                rows = await checks.live_refs(conn, container_id, after, PAGE)
            if not rows:
                return
            after = (rows[-1]["doc_id"], rows[-1]["role"], rows[-1]["part"])
            await self._pace.rest()
            for row in rows:
                what = await self._wrong_bytes(row)
                if what is not None and await self._still_refers(row):
                    yield Difference(
                        kind="blob",
                        object=row["sha256"],
                        message=f"{row['role']} of document {row['doc_id']} {what}",
                        repair=Remedy.REDRAW,
                        doc_id=row["doc_id"],
                        generation=row["generation"],
                    )

    async def _archives(self, container_id: str | None) -> AsyncIterator[Difference]:
        """Exports and backups whose file is not there, or not whole."""
        after = 0
        while True:
            async with self._db.transaction() as conn:
                rows = await checks.archives(conn, container_id, after, PAGE)
            if not rows:
                return
            after = rows[-1]["id"]
            await self._pace.rest()
            for row in rows:
                what = await self._wrong_bytes(row)
                if what is not None and await self._still_kept(row):
                    yield _archive(row, what)

    async def _still_kept(self, row: dict[str, Any]) -> bool:
        async with self._db.transaction() as conn:
            return await archives.get(conn, row["id"], ArchiveKind(row["kind"])) is not None

    async def _wrong_bytes(self, row: dict[str, Any]) -> str | None:
        sha256 = Sha256(row["sha256"])
        size = await self._blobs.size(sha256)
        if size is None:
            return f"is absent; {row['bytes']} bytes expected"
        if row["state"] != "present" or size != row["bytes"]:
            return f"has {size} bytes ({row['state']}); {row['bytes']} expected"
        if self._deep and await self._hashed(sha256) not in (None, sha256):
            return "has other bytes than its hash says"
        return None

    async def _hashed(self, sha256: Sha256) -> str | None:
        """What the stored bytes hash to; None when they went meanwhile."""
        digest = hashlib.sha256()
        try:
            async for piece in self._blobs.stream(sha256):
                digest.update(piece)
                await self._pace.rest()
        except NotFound:
            return None
        return digest.hexdigest()

    async def _still_refers(self, row: dict[str, Any]) -> bool:
        async with self._db.transaction() as conn:
            return await checks.refers(
                conn, row["doc_id"], row["generation"], row["role"], row["part"]
            )

    async def _stores(self) -> AsyncIterator[Difference]:
        """Blobs without a purpose."""
        async with self._db.transaction() as conn:
            garbage = await checks.blob_garbage(conn, self._grace, MOST_DIFFERENCES)
        for row in garbage:
            yield Difference(
                kind="blob",
                object=row["sha256"],
                message=f"nothing refers to it ({row['state']})",
                repair=Remedy.COLLECT,
            )
        batch: list[str] = []
        async for sha256 in self._blobs.hashes():
            batch.append(sha256)
            if len(batch) == PAGE:
                async for difference in self._unknown_blobs(batch):
                    yield difference
                batch = []
        async for difference in self._unknown_blobs(batch):
            yield difference

    async def _collections(self) -> list[Difference]:
        """Collections without an owner. Of those that look like ours on a server only the ones are dropped that this
        registry has made: others may be another installation's, or of a time that the registry has lost."""
        names = await self._index.collections()  # before their rows, which are there first
        async with self._db.transaction() as conn:
            owned = {s.collection() for s in await containers.all_spaces(conn)}
            made = await containers.collections_made(conn)
        strange = [name for name in names if name.startswith(OURS) and name not in owned]
        return [
            Difference(
                kind="collection",
                object=name,
                message="belongs to no container",
                repair=Remedy.DROP,
            )
            if self._alone or name in made
            else Difference(
                kind="collection",
                object=name,
                message="was not made by this installation and is left alone: another one on the same server may search "
                "it (each should have an LLC_QDRANT_PREFIX of its own); if nobody does, drop it by hand",
            )
            for name in strange
        ]

    async def _tokens(self) -> list[Difference]:
        """Rights to what is not there: whoever makes a container of that name gives it to them. No difference, since
        a token may be made before its container."""
        async with self._db.transaction() as conn:
            rows = await stamp_rows.dangling_tokens(conn, MOST_DIFFERENCES)
        return [
            Difference(
                kind="token",
                object=str(row["id"]),
                message=f"'{row['name']}' of {row['principal']} opens {', '.join(row['gone'])}, which is not there: "
                f"`latent token revoke {row['id']}` unless it is still to be made",
            )
            for row in rows
        ]

    async def _unknown_blobs(self, hashes: list[str]) -> AsyncIterator[Difference]:
        if not hashes:
            return
        await self._pace.rest()
        async with self._db.transaction() as conn:
            known = await checks.known_blobs(conn, hashes)
        for sha256 in hashes:
            if sha256 not in known and await self._blobs.size(Sha256(sha256)) is not None:
                yield Difference(
                    kind="blob",
                    object=sha256,
                    message="is stored and has no row",
                    repair=Remedy.COLLECT,
                )


def _archive(row: dict[str, Any], what: str) -> Difference:
    message = f"its file {what}"
    if row["kind"] == ArchiveKind.BACKUP:
        message += (
            f"; `latent import` takes a copy that was fetched; make another (`latent backup now {row['container_id']}`) "
            f"and delete this one (`latent backup delete {row['id']} --yes`)"
        )
    return Difference(
        kind=row["kind"],
        object=str(row["id"]),
        message=message,
        repair=Remedy.NONE if row["kind"] == ArchiveKind.BACKUP else Remedy.DISCARD,
    )


async def _few(found: AsyncIterator[Difference]) -> list[Difference]:
    """The first differences of a kind."""
    kept: list[Difference] = []
    async for difference in found:
        kept.append(difference)
        if len(kept) >= MOST_DIFFERENCES:
            break
    return kept
