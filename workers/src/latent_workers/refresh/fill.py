"""Fills a collection with the vectors of live documents, from stored text, document by document.

Rows record finished documents after their points are stored: a failed attempt loses only its last documents, and
their vectors are in the cache. Nothing is fetched or parsed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Final
from uuid import UUID

import numpy as np

from latent_core.db import containers
from latent_core.db.connection import Connection
from latent_core.db.containers import Space
from latent_core.db.documents import chunks, generated_chunks
from latent_core.db.spaces import refresh_sources, space_points
from latent_core.db.spaces.refresh_sources import StoredText
from latent_core.db.spaces.space_points import FIRST, LiveDocument
from latent_core.domain.errors import NotFound, Unavailable
from latent_core.domain.findings import RefusedInputs
from latent_core.domain.ids import ChunkId, PointId, point_id
from latent_core.domain.vector_types import Matrix, Vector
from latent_core.ingest.delete import ChunkPoints, enqueue_point_purges, enqueue_purges
from latent_core.ingest.stage import stage_points
from latent_core.models.embedding.drift import ForwardMap
from latent_core.models.embedding.picture import Piece
from latent_core.queue.context import JobContext
from latent_core.queue.finish import hold
from latent_core.runtime.failpoint import failpoint
from latent_core.vectors.port import Points
from latent_core.wire.refresh import SpaceState
from latent_workers.deps import Deps
from latent_workers.ingest.refused_inputs import (
    NAMED,
    is_skipped,
    kept_of,
    refused_inputs_of,
    skipped_page,
)

DOCUMENTS_PER_BATCH: Final = 64
CHUNKS_PER_BATCH: Final = 512
"""Recorded together; a document with more chunks is its own batch."""
TEXTS_PER_STEP: Final = 512
POINTS_PER_LOOK: Final = 1000
MAX_LOOKS: Final = 5


@dataclass(frozen=True, slots=True)
class VectorMapping:
    """The source of vectors that are mapped or copied, not embedded."""

    source: Space
    map: ForwardMap | None
    """None: the same model made them, so they are copied."""


@dataclass(slots=True)
class SpaceFill:
    """Completes one space. ``run`` may be called again: it adds what is missing then."""

    ctx: JobContext
    deps: Deps
    space: Space
    rewrite: bool = False
    """This job writes every document; else only missing ones."""
    mapped_only: bool = False
    """Only documents with mapped vectors are embedded."""
    mapping: VectorMapping | None = None
    note: str = "chunks embedded"
    done: int = 0
    total: int = 0
    embedded: int = field(default=0)
    """Texts that were embedded or taken from the cache."""
    refused_inputs: RefusedInputs = field(init=False)
    """Images without a vector in this attempt."""
    lost: int = field(default=0)
    """Their chunks."""
    collection_cleared: bool = False
    """The collection was dropped before: rows about its points are wrong."""

    def __post_init__(self) -> None:
        self.refused_inputs = refused_inputs_of(self.ctx)

    @property
    def _job_id(self) -> int | None:
        return self.ctx.job.id if self.rewrite else None

    async def run(self) -> None:
        """Until nothing is missing. New documents are written by their own ingest, or found here."""
        await self._count()
        await self._look_back()
        begun_with = self.done
        while await self._pass():
            await self.ctx.checkpoint()
        if not begun_with and self.embedded == self.lost:
            self.refused_inputs.check(others=0)
        await self.ctx.progress(self.total, self.total, self.note)

    async def verify(self) -> None:
        """Check every point by its id and write missing ones. ``Unavailable`` if some stay missing."""
        for _ in range(MAX_LOOKS):
            lacking = await self._lacking()
            if not lacking:
                return
            await self.ctx.transact(partial(self._unrecord, doc_ids=lacking))
            await self.run()
        raise Unavailable(
            f"points disappear from {self.space.collection()} again and again: check the vector engine, then requeue the job"
        )

    async def _count(self) -> None:
        async with self.deps.stack.db.transaction() as conn:
            if self.mapped_only:
                waiting = await space_points.mapped(conn, self.space.collection_id, limit=1_000_000)
                self.done, self.total = 0, sum(one.chunks for one in waiting)
                return
            _, self.total = await space_points.totals(conn, self.space.container_id)
            self.done = await space_points.done(
                conn, self.space.container_id, self.space.collection_id, self._job_id
            )

    async def _look_back(self) -> None:
        """Vectors from an earlier attempt show that the embedder accepts images."""
        async with self.deps.stack.db.transaction() as conn:
            if await space_points.shows(
                conn, self.space.container_id, self.space.collection_id, self._job_id
            ):
                self.refused_inputs.take(1)

    async def _pass(self) -> bool:
        """One pass over all documents; returns whether there was anything to do."""
        after, found = FIRST, False
        while batch := await self._next(after):
            found = True
            after = batch[-1].id
            await self._write(batch)
            self.done += sum(one.chunks for one in batch)
            await self.ctx.progress(min(self.done, self.total), self.total, self.note)
        return found

    async def _next(self, after: UUID) -> list[LiveDocument]:
        async with self.deps.stack.db.transaction() as conn:
            if self.mapped_only:
                if not await self._still_current(conn):
                    return []
                found = await space_points.mapped(
                    conn, self.space.collection_id, after=after, limit=DOCUMENTS_PER_BATCH
                )
            else:
                found = await space_points.missing(
                    conn,
                    self.space.container_id,
                    self.space.collection_id,
                    after=after,
                    limit=DOCUMENTS_PER_BATCH,
                    job_id=self._job_id,
                )
        kept, size = found[:1], sum(one.chunks for one in found[:1])
        for one in found[1:]:
            size += one.chunks
            if size > CHUNKS_PER_BATCH:
                break
            kept.append(one)
        return kept

    async def _still_current(self, conn: Connection) -> bool:
        """A space may be aborted while its mapped vectors are replaced."""
        known = await containers.spaces(conn, self.space.container_id)
        return any(s.id == self.space.id and s.state is not SpaceState.DROPPING for s in known)

    async def _write(self, batch: Sequence[LiveDocument]) -> None:
        counts: dict[int, int] = {}
        read: list[ChunkPoints] = []
        after = -1
        while rows := await self._texts(batch, after):
            after = rows[-1].chunk_no
            written = await self._points(rows)
            counts |= written
            read += [
                ChunkPoints(r.doc_id, r.generation, r.id, max(1, written[r.chunk_no])) for r in rows
            ]
        failpoint("refresh.before_record")
        await self.ctx.transact(lambda conn: self._record(conn, batch, counts, read))
        failpoint("refresh.after_record")

    async def _texts(self, batch: Sequence[LiveDocument], after: int) -> list[StoredText]:
        source = self.mapping.source if self.mapping is not None else self.space
        async with self.deps.stack.db.transaction() as conn:
            return await refresh_sources.texts(
                conn,
                batch,
                source.collection_id,
                like_the_chunks=source.state is SpaceState.LIVE,
                after=after,
                limit=TEXTS_PER_STEP,
            )

    async def _points(self, rows: Sequence[StoredText]) -> dict[int, int]:
        """Store the points of these chunks; returns their number by chunk_no."""
        if self.mapping is not None:
            mapped = await self._mapped(rows, self.mapping)
            rest = [row for row in rows if row.chunk_no not in mapped]
            return mapped | (await self._made(rest) if rest else {})
        return await self._made(rows)

    async def _made(self, rows: Sequence[StoredText]) -> dict[int, int]:
        parts = await self._parts(rows)
        ids = {
            row.chunk_no: _ids(row, max(len(parts[row.chunk_no]), row.points or 0)) for row in rows
        }
        lacking = await self._absent(rows, ids)
        made = await self._embedded(lacking, parts)
        spread: list[Vector] = []
        for row in lacking:
            own = made[row.chunk_no]
            if not len(own):
                ids[row.chunk_no] = []
            # More points than parts: those that stand there must not keep what another model said.
            spread += [own[min(n, len(own) - 1)] for n in range(len(ids[row.chunk_no]))]
        if spread:
            await self._store(lacking, ids, np.stack(spread))
        return {chunk_no: len(own) for chunk_no, own in ids.items()}

    async def _embedded(
        self, rows: Sequence[StoredText], parts: dict[int, list[Piece]]
    ) -> dict[int, Matrix]:
        """Vectors of each row; none for an image that cannot be embedded, unless it has a point already: then the
        vector of the page's text replaces it, so that no vector of another model stays."""
        pieces = [piece for row in rows for piece in parts[row.chunk_no]]
        if not pieces:
            return {}
        vectors = await self._vectors(pieces)
        self.embedded += len(pieces)
        made: dict[int, Matrix] = {}
        start = 0
        for row in rows:
            stop = start + len(parts[row.chunk_no])
            made[row.chunk_no] = vectors[start:stop]
            start = stop
            own = parts[row.chunk_no]
            if any(
                isinstance(piece, str) and is_skipped(self.refused_inputs, piece) for piece in own
            ):
                _, made[row.chunk_no] = kept_of(self.refused_inputs, [own], made[row.chunk_no])
                self.lost += not len(made[row.chunk_no])
            elif is_skipped(self.refused_inputs, own[0]):
                text_pieces = self.deps.embedding.pieces(self.space, row.embed_text, None)[:1]
                stands = row.points and not self.collection_cleared
                made[row.chunk_no] = await self._vectors(text_pieces) if stands else vectors[:0]
                await self._tell(row)
        return made

    async def _vectors(self, pieces: Sequence[Piece]) -> Matrix:
        return await self.deps.embedding.embed(
            self.space,
            pieces,
            self.ctx.checkpoint,
            _nobody,
            job_id=self.ctx.job.id,
            refused_inputs=self.refused_inputs,
        )

    async def _tell(self, row: StoredText) -> None:
        self.lost += 1
        error = self.refused_inputs.why(row.picture)
        if error is None or self.lost > NAMED:
            return
        async with self.deps.stack.db.transaction() as conn:
            place = await space_points.page_of(conn, self.space.container_id, row.chunk_no)
        if place is not None:
            page, uri = place
            await self.ctx.warn(skipped_page(page, error.message, source_uri=uri))

    async def _parts(self, rows: Sequence[StoredText]) -> dict[int, list[Piece]]:
        def cut() -> dict[int, list[Piece]]:
            made_of = self.deps.embedding.pieces
            return {row.chunk_no: made_of(self.space, row.embed_text, row.picture) for row in rows}

        return await asyncio.to_thread(cut)

    async def _absent(
        self, rows: Sequence[StoredText], ids: dict[int, list[PointId]]
    ) -> list[StoredText]:
        """Rows with a missing point; all rows if all are to be written."""
        if self.rewrite or self.mapped_only or self.mapping is not None:
            return list(rows)
        point_ids = [one for own in ids.values() for one in own]
        there = await self.deps.stack.vectors.vectors(self.space.collection(), point_ids)
        return [row for row in rows if not all(one in there for one in ids[row.chunk_no])]

    async def _mapped(self, rows: Sequence[StoredText], mapping: VectorMapping) -> dict[int, int]:
        """Rows whose old vectors all exist, mapped and stored."""
        ids = {
            row.chunk_no: _ids(row, row.points or 1) for row in rows
        }  # what has none is embedded
        point_ids = [one for own in ids.values() for one in own]
        old = await self.deps.stack.vectors.vectors(mapping.source.collection(), point_ids)
        whole = [row for row in rows if all(one in old for one in ids[row.chunk_no])]
        if not whole:
            return {}
        matrix = np.stack([old[one] for row in whole for one in ids[row.chunk_no]])
        if mapping.map is not None:
            matrix = await asyncio.to_thread(mapping.map.apply, matrix)
        await self._store(whole, ids, matrix)
        return {row.chunk_no: len(ids[row.chunk_no]) for row in whole}

    async def _store(
        self, rows: Sequence[StoredText], ids: dict[int, list[PointId]], vectors: Matrix
    ) -> None:
        spread = [row for row in rows for _ in ids[row.chunk_no]]
        points = Points(
            ids=[one for row in rows for one in ids[row.chunk_no]],
            vectors=vectors,
            doc_ids=[row.doc_id for row in spread],
            generations=[row.generation for row in spread],
            chunk_nos=[row.chunk_no for row in spread],
        )
        failpoint("refresh.before_vectors")
        await stage_points(self.deps.stack.vectors, self.space, points, self.ctx.checkpoint)
        failpoint("refresh.after_vectors")

    async def _record(
        self,
        conn: Connection,
        batch: Sequence[LiveDocument],
        counts: dict[int, int],
        read: Sequence[ChunkPoints],
    ) -> None:
        """Record the stored points; documents that were replaced or deleted in the meantime have left orphaned points,
        and so have generated chunks. A document that has got more of these is written once more."""
        job = self.ctx.job
        await hold(conn, job)
        if await containers.hold(conn, self.space.container_id) is None:
            raise NotFound(f"container '{self.space.container_id}' was deleted in the meantime")
        live = await space_points.still_live(conn, batch)
        changed = await space_points.with_other_chunks(conn, batch, counts)
        await space_points.record(
            conn,
            self.space.collection_id,
            [(one.id, one.generation) for one in batch if one.id in live - changed],
            job_id=job.id,
            mapped=self.mapping is not None and self.mapping.map is not None,
        )
        await space_points.count_points(
            conn, self.space.container_id, self.space.collection_id, counts
        )
        await self._purge_removed(conn, [one for one in read if one.doc_id in live])
        gone = [(one.id, one.generation) for one in batch if one.id not in live]
        if gone:
            await enqueue_purges(
                conn,
                self.space.container_id,
                only=gone,
                principal=job.principal,
                lease_seconds=self.deps.settings.lease_seconds,
                twice=False,
            )

    async def _purge_removed(self, conn: Connection, read: Sequence[ChunkPoints]) -> None:
        """Purge the points of chunks that were replaced after their texts were read."""
        kept = await generated_chunks.existing(
            conn, self.space.container_id, [ChunkId(one.chunk) for one in read]
        )
        removed = [one for one in read if one.chunk not in kept]
        for _, own in groupby(removed, key=lambda one: one.doc_id):
            await enqueue_point_purges(
                conn,
                self.space.container_id,
                list(own),
                principal=self.ctx.job.principal,
                lease_seconds=self.deps.settings.lease_seconds,
            )

    async def _lacking(self) -> set[UUID]:
        """Documents with a missing point."""
        lacking: set[UUID] = set()
        after = -1
        while True:
            await self.ctx.checkpoint()
            async with self.deps.stack.db.transaction() as conn:
                rows = await chunks.points(
                    conn,
                    self.space.container_id,
                    after=after,
                    limit=POINTS_PER_LOOK,
                    collection_id=self.space.collection_id,
                )
            if not rows:
                return lacking
            after = rows[-1]["chunk_no"]
            owners = {
                point_id(row["id"], row["generation"], window): row["doc_id"]
                for row in rows
                for window in range(row["windows"])
            }
            there = await self.deps.stack.vectors.vectors(self.space.collection(), list(owners))
            lacking |= {doc_id for one, doc_id in owners.items() if one not in there}

    async def _unrecord(self, conn: Connection, doc_ids: set[UUID]) -> None:
        await hold(conn, self.ctx.job)
        await space_points.unrecord(conn, self.space.collection_id, doc_ids)


def with_version(space: Space, version: str | None) -> Space:
    """``space`` with the version of its next embedder."""
    return space if version is None else replace(space, version=version)


def _ids(row: StoredText, count: int) -> list[PointId]:
    return [point_id(row.id, row.generation, window) for window in range(count)]


async def _nobody(_done: int) -> None:
    """Progress is reported by documents."""
