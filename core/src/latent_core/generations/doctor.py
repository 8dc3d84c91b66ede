"""Doctor: compare rows, points, postings and blobs, and say every difference (DESIGN §7.6).

Runs on a live system in bounded pages. What is in motion (a document with an ingest or a purge open)
is not a difference; what looks like one is read again before it is reported.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final
from uuid import UUID

from pydantic import BaseModel

from latent_core.blobs.port import BlobStore
from latent_core.domain.errors import LatentError
from latent_core.domain.ids import PointId, Sha256, point_id
from latent_core.keywords.differences import differences
from latent_core.registry import checks, chunks, containers
from latent_core.registry.connection import Database
from latent_core.registry.containers import Container
from latent_core.vectors.port import StoredPoint, VectorIndex

PAGE: Final = 1000
IDS_A_CHECK: Final = 256
MOST_DIFFERENCES: Final = 200
"""A kind and container: enough to see what is wrong."""


class Difference(BaseModel):
    """One thing that is not as the rows say."""

    kind: str
    object: str
    message: str


class ContainerReport(BaseModel):
    counts: dict[str, int] = {}
    differences: list[Difference] = []


class Report(BaseModel):
    clean: bool = True
    containers: dict[str, ContainerReport] = {}
    stores: list[Difference] = []
    """Differences that belong to no container."""
    checks: dict[str, str | bool] = {}
    """What else a person should know of this installation."""


class Doctor:
    def __init__(
        self, db: Database, index: VectorIndex, blobs: BlobStore, *, grace_seconds: float
    ) -> None:
        self._db = db
        self._index = index
        self._blobs = blobs
        self._grace = grace_seconds

    async def examine(self, wanted: list[str] | None) -> Report:
        """Compare all stores, for the named containers or for all."""
        async with self._db.transaction() as conn:
            found = {c.id: c for c in await containers.all_(conn)}
        report = Report()
        for container_id in sorted(found if wanted is None else wanted):
            report.containers[container_id] = await self._container(found[container_id])
        if wanted is None:
            report.stores = [d async for d in self._stores()]
        report.clean = not report.stores and not any(
            c.differences for c in report.containers.values()
        )
        return report

    async def _container(self, container: Container) -> ContainerReport:
        report = ContainerReport()
        async with self._db.transaction() as conn:
            report.counts = await checks.counts(conn, container.id)
        try:
            report.counts["points"] = await self._index.count(container.space.collection())
        except LatentError as error:
            report.differences.append(
                Difference(kind="vectors", object=container.id, message=error.message)
            )
        else:
            report.differences += await _few(self._points(container))
            report.differences += await _few(self._missing_points(container))
        report.differences += await _few(self._rows(container.id))
        report.differences += await _few(self._keywords(container.id))
        report.differences += await _few(self._refs(container.id))
        return report

    async def _rows(self, container_id: str) -> AsyncIterator[Difference]:
        async with self._db.transaction() as conn:
            pending = await checks.pending_without_job(conn, container_id, MOST_DIFFERENCES)
            wrong = await checks.wrong_counts(conn, container_id, MOST_DIFFERENCES)
            dead = await checks.dead_chunks(conn, container_id, MOST_DIFFERENCES)
            moving = await checks.with_open_work(conn, container_id, [r["doc_id"] for r in dead])
        for row in pending:
            yield Difference(
                kind="document", object=str(row["id"]), message=f"{row['uri']} waits without a job"
            )
        for row in wrong:
            yield Difference(
                kind="document",
                object=str(row["id"]),
                message=f"{row['uri']} should have {row['live_chunks']} chunks and has {row['found']}",
            )
        for row in dead:
            if row["doc_id"] not in moving:
                yield Difference(
                    kind="chunk",
                    object=f"{row['doc_id']}/{row['generation']}",
                    message=f"{row['chunks']} rows of a generation that is not live, and no purge is queued",
                )

    async def _points(self, container: Container) -> AsyncIterator[Difference]:
        """Points that no live chunk expects."""
        after: PointId | None = None
        collection = container.space.collection()
        while batch := await self._index.scroll(collection, after=after, limit=PAGE):
            after = batch[-1].id
            strangers = await self._strangers(container.id, batch)
            if not strangers:
                continue
            async with self._db.transaction() as conn:
                moving = await checks.with_open_work(
                    conn, container.id, list({p.doc_id for p in strangers})
                )
            for point in await self._strangers(
                container.id, [p for p in strangers if p.doc_id not in moving]
            ):
                if await self._index.vectors(collection, [point.id]):
                    yield Difference(
                        kind="point",
                        object=str(point.id),
                        message=f"belongs to no live chunk (document {point.doc_id}, generation {point.generation})",
                    )

    async def _strangers(self, container_id: str, batch: list[StoredPoint]) -> list[StoredPoint]:
        async with self._db.transaction() as conn:
            rows = await chunks.by_ord(conn, container_id, [p.ord for p in batch])
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
                rows = await chunks.points(conn, container.id, after=after, limit=PAGE)
            if not rows:
                return
            after = rows[-1]["ord"]
            wanted = {
                point_id(r["id"], r["generation"], w): r["ord"]
                for r in rows
                for w in range(r["windows"])
            }
            for point in await self._absent(container.space.collection(), list(wanted)):
                async with self._db.transaction() as conn:
                    still_live = await chunks.by_ord(conn, container.id, [wanted[point]])
                if still_live:
                    yield Difference(
                        kind="point",
                        object=str(point),
                        message=f"chunk {wanted[point]} is live and has no vector",
                    )

    async def _absent(self, collection: str, ids: list[PointId]) -> list[PointId]:
        absent: list[PointId] = []
        for start in range(0, len(ids), IDS_A_CHECK):
            asked = ids[start : start + IDS_A_CHECK]
            stored = await self._index.vectors(collection, asked)
            absent += [i for i in asked if i not in stored]
        return absent

    async def _keywords(self, container_id: str) -> AsyncIterator[Difference]:
        for found in await differences(self._db, container_id, limit=MOST_DIFFERENCES):
            yield Difference(kind="keywords", object=found.object, message=found.message)

    async def _refs(self, container_id: str) -> AsyncIterator[Difference]:
        """References of live documents to blobs that are not there, or not whole."""
        after = (UUID(int=0), "", 0)
        while True:
            async with self._db.transaction() as conn:
                rows = await checks.live_refs(conn, container_id, after, PAGE)
            if not rows:
                return
            after = (rows[-1]["doc_id"], rows[-1]["role"], rows[-1]["part"])
            for row in rows:
                size = await self._blobs.size(Sha256(row["sha256"]))
                if row["state"] != "present" or size != row["bytes"]:
                    found = "is absent" if size is None else f"has {size} bytes"
                    yield Difference(
                        kind="blob",
                        object=row["sha256"],
                        message=f"{row['role']} of document {row['doc_id']} {found}; {row['bytes']} expected",
                    )

    async def _stores(self) -> AsyncIterator[Difference]:
        """Blobs without a purpose and collections without an owner."""
        collections = await self._index.collections()  # before their rows, which are there first
        async with self._db.transaction() as conn:
            garbage = await checks.blob_garbage(conn, self._grace, MOST_DIFFERENCES)
            owned = {s.collection() for s in await containers.all_spaces(conn)}
        for row in garbage:
            yield Difference(
                kind="blob", object=row["sha256"], message=f"nothing refers to it ({row['state']})"
            )
        for name in collections:
            if name not in owned:
                yield Difference(kind="collection", object=name, message="belongs to no container")
        batch: list[str] = []
        async for sha256 in self._blobs.hashes():
            batch.append(sha256)
            if len(batch) == PAGE:
                async for difference in self._unknown_blobs(batch):
                    yield difference
                batch = []
        async for difference in self._unknown_blobs(batch):
            yield difference

    async def _unknown_blobs(self, hashes: list[str]) -> AsyncIterator[Difference]:
        if not hashes:
            return
        async with self._db.transaction() as conn:
            known = await checks.known_blobs(conn, hashes)
        for sha256 in hashes:
            if sha256 not in known and await self._blobs.size(Sha256(sha256)) is not None:
                yield Difference(kind="blob", object=sha256, message="is stored and has no row")


async def _few(found: AsyncIterator[Difference]) -> list[Difference]:
    """The first differences of a kind."""
    kept: list[Difference] = []
    async for difference in found:
        kept.append(difference)
        if len(kept) >= MOST_DIFFERENCES:
            break
    return kept
