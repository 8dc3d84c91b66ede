"""Compare the points of a container's live collection with its live chunks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import numpy as np

from latent_core.db.connection import Database
from latent_core.db.containers import Container
from latent_core.db.doctor import checks
from latent_core.db.documents import chunks, pages
from latent_core.doctor.context import PAGE, DoctorThrottle
from latent_core.domain.findings import Remedy, StoreDifference
from latent_core.domain.generated import FIRST_POSITION
from latent_core.domain.ids import PointId, point_id
from latent_core.vectors.port import StoredPoint, VectorIndex

ORPHAN: Final = "orphan_point"
"""Kind of a difference: a point of a live generation that no chunk expects."""
IDS_PER_CHECK: Final = 256
MAX_LENGTH_ERROR: Final = 0.01
"""How far from 1 the length of a stored vector may be."""


class PointCheck:
    def __init__(self, db: Database, index: VectorIndex, pace: DoctorThrottle) -> None:
        self._db = db
        self._index = index
        self._pace = pace

    async def strays(self, container: Container) -> AsyncIterator[StoreDifference]:
        """Points that no live chunk expects."""
        after: PointId | None = None
        collection = container.space.collection()
        while batch := await self._index.scroll(collection, after=after, limit=PAGE):
            after = batch[-1].id
            await self._pace.rest()
            strays = await self._unexpected(container, batch)
            if not strays:
                continue
            async with self._db.transaction() as conn:
                moving = await checks.with_open_work(
                    conn, container.id, list({p.doc_id for p in strays})
                )
            for point in await self._unexpected(
                container, [p for p in strays if p.doc_id not in moving]
            ):
                if await self._index.vectors(collection, [point.id]):
                    yield await self._stray(container, point)

    async def _stray(self, container: Container, point: StoredPoint) -> StoreDifference:
        """One of a dead generation goes with all of that generation. One of a live generation is deleted by its id,
        unless a chunk expects it, with another chunk_no."""
        async with self._db.transaction() as conn:
            live = await pages.is_live(conn, point.doc_id, point.generation)
            expected = live and await chunks.expects(
                conn, point.doc_id, point.generation, point.id, container.space.collection_id
            )
        return StoreDifference(
            kind=ORPHAN if live and not expected else "point",
            object=str(point.id),
            message=f"belongs to no live chunk (document {point.doc_id}, generation {point.generation})",
            repair=Remedy.REINGEST if expected else Remedy.DROP,
            doc_id=point.doc_id,
            generation=point.generation,
        )

    async def _unexpected(
        self, container: Container, batch: list[StoredPoint]
    ) -> list[StoredPoint]:
        async with self._db.transaction() as conn:
            rows = await chunks.by_chunk_no(
                conn,
                container.id,
                [p.chunk_no for p in batch],
                collection_id=container.space.collection_id,
            )
        expected = {
            (point_id(r["id"], r["generation"], w), r["chunk_no"])
            for r in rows
            for w in range(r["windows"])
        }
        return [p for p in batch if (p.id, p.chunk_no) not in expected]

    async def missing(self, container: Container) -> AsyncIterator[StoreDifference]:
        """Live chunks whose vectors are missing or unusable."""
        after = -1
        while True:
            async with self._db.transaction() as conn:
                rows = await chunks.points(
                    conn,
                    container.id,
                    after=after,
                    limit=PAGE,
                    collection_id=container.space.collection_id,
                )
            if not rows:
                return
            after = rows[-1]["chunk_no"]
            await self._pace.rest()
            expected = {
                point_id(r["id"], r["generation"], w): r for r in rows for w in range(r["windows"])
            }
            bad = await self._bad(container.space.collection(), list(expected))
            for point, cause in bad.items():
                row = expected[point]
                if await self._still_live(container.id, row):
                    yield _missing(point, row, cause)

    async def _still_live(self, container_id: str, row: dict[str, Any]) -> bool:
        async with self._db.transaction() as conn:
            return bool(await chunks.by_chunk_no(conn, container_id, [row["chunk_no"]]))

    async def _bad(self, collection: str, ids: list[PointId]) -> dict[PointId, str]:
        """Points that are missing, or whose vector is not of unit length."""
        bad: dict[PointId, str] = {}
        for start in range(0, len(ids), IDS_PER_CHECK):
            batch = ids[start : start + IDS_PER_CHECK]
            stored = await self._index.vectors(collection, batch, all_replicas=True)
            for one in batch:
                if one not in stored:
                    bad[one] = "has no vector, or not in every replica"
                elif not abs(float(np.linalg.norm(stored[one])) - 1.0) < MAX_LENGTH_ERROR:  # or NaN
                    bad[one] = "has a vector that is not of unit length"
        return bad


def _missing(point: PointId, row: dict[str, Any], cause: str) -> StoreDifference:
    return StoreDifference(
        kind="point",
        object=str(point),
        message=f"chunk {row['chunk_no']} is live and {cause}",
        repair=Remedy.EMBED if row["position"] >= FIRST_POSITION else Remedy.REINGEST,
        doc_id=row["doc_id"],
        generation=row["generation"],
    )
