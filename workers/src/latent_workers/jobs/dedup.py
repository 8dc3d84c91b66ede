"""Dedup: find the chunks of a container that repeat an earlier one (DESIGN §9).

Near-duplicates are marked, never removed: they keep text, page, keywords and vector, and count again when their
original is deleted. A step judges a window of the pending chunks; then the job goes to the end of its container's
queue, until nothing is pending.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from latent_core.db import containers
from latent_core.db.connection import Connection
from latent_core.db.containers import Container
from latent_core.db.documents import duplicates
from latent_core.db.documents.duplicates import PendingRange, Signatures
from latent_core.domain.chunk import BlockType, Modality
from latent_core.domain.ids import PointId, point_id
from latent_core.domain.vector_types import Vector
from latent_core.queue.context import JobContext
from latent_core.queue.finish import finish, hold
from latent_core.queue.requeue import requeue_with
from latent_workers.dedup import NeighbourFinder, alike, judge, sign, words
from latent_workers.deps import Deps
from latent_workers.ingest import cleanup

CHUNK_NOS_PER_STEP: Final = 2048
RANGES_PER_LOOK: Final = 500
CHUNKS_PER_STEP: Final = 128
"""Compared between two lease checks."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A visible chunk to judge."""

    chunk_no: int
    points: tuple[PointId, ...]
    """One per window."""
    same_as: str | None
    """Limits what it may repeat, whatever its vector says: a table is embedded by a summary, which tables with
    different rows may share, and definitions of source code are alike although they have different names."""
    original: int | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Subject:
        windows = range(row["windows"])
        table = row["block_type"] == BlockType.TABLE.value
        return cls(
            chunk_no=row["chunk_no"],
            points=tuple(point_id(row["id"], row["generation"], w) for w in windows),
            same_as=row["content_hash"] if table else row["symbol"],
            original=row["original"],
        )


@dataclass(frozen=True, slots=True)
class DedupWindow:
    """The work of one step."""

    done: list[PendingRange]
    """Ranges that it covers."""
    shorter: PendingRange | None
    """The rest of the last range, if it covers only a part."""
    chunk_nos: list[int]


@dataclass(slots=True)
class DedupVerdicts:
    """The results of a step."""

    signed: dict[int, bytes] = field(default_factory=dict)
    originals: dict[int, int] = field(default_factory=dict)


async def dedup(ctx: JobContext, deps: Deps) -> None:
    """One step; enqueues the next one, or ends."""
    async with deps.stack.db.transaction() as conn:
        container = await containers.get(conn, ctx.job.container_id)
    if container is None:
        return
    window = await ctx.transact(lambda conn: _begin(conn, ctx))
    verdicts = await _DedupStep(ctx, deps, container).judge(window.chunk_nos)
    await ctx.checkpoint()
    await ctx.transact(lambda conn: _end(conn, ctx, window, verdicts))


async def _begin(conn: Connection, ctx: JobContext) -> DedupWindow:
    """Choose the window. Chunks that repeat a chunk in it are judged again, because that chunk may be gone."""
    container_id = ctx.job.container_id
    await hold(conn, ctx.job)
    if await containers.hold(conn, container_id) is None:
        return DedupWindow([], None, [])
    pending = await duplicates.pending(conn, container_id, RANGES_PER_LOOK)
    window = _window(pending)
    await duplicates.drop_dead(conn, container_id, window.chunk_nos)
    freed = await duplicates.release(conn, container_id, window.chunk_nos)
    await duplicates.leave(conn, container_id, _uncovered(freed, pending))
    return window


def _window(pending: Sequence[PendingRange]) -> DedupWindow:
    """The lowest pending chunk_nos, at most ``CHUNK_NOS_PER_STEP``."""
    window = DedupWindow([], None, [])
    for one in pending:
        remaining = CHUNK_NOS_PER_STEP - len(window.chunk_nos)
        if one.last - one.first >= remaining:
            window.chunk_nos.extend(range(one.first, one.first + remaining))
            return DedupWindow(
                window.done, PendingRange(one.id, one.first + remaining, one.last), window.chunk_nos
            )
        window.chunk_nos.extend(range(one.first, one.last + 1))
        window.done.append(one)
    return window


def _uncovered(chunk_nos: Sequence[int], pending: Sequence[PendingRange]) -> list[int]:
    return [o for o in chunk_nos if not any(one.first <= o <= one.last for one in pending)]


async def _end(
    conn: Connection, ctx: JobContext, window: DedupWindow, verdicts: DedupVerdicts
) -> None:
    """Store the verdicts and the pending ranges. Chunks that repeat a chunk which is no longer an original are
    judged again."""
    container_id = ctx.job.container_id
    await hold(conn, ctx.job)
    if await containers.hold(conn, container_id) is None:
        await finish(conn, ctx.job)
        return
    await duplicates.keep(conn, container_id, verdicts.signed, verdicts.originals)
    freed = await duplicates.release(conn, container_id, list(verdicts.originals))
    await duplicates.leave(conn, container_id, freed)
    await duplicates.settle(conn, window.done, window.shorter)
    if await duplicates.waiting(conn, container_id):
        await requeue_with(conn, ctx.job, {})
    else:
        await finish(conn, ctx.job)


class _DedupStep:
    """Compares the chunks of one window with similar chunks."""

    def __init__(self, ctx: JobContext, deps: Deps, container: Container) -> None:
        self._ctx = ctx
        self._db = deps.stack.db
        self._index = deps.stack.vectors
        self._container = container
        self._collection = container.space.collection(Modality.TEXT.value)
        self._threshold = container.manifest.dedup.semantic_threshold

    async def judge(self, chunk_nos: Sequence[int]) -> DedupVerdicts:
        subjects = await self._subjects(chunk_nos)
        firsts = await self._vectors([s.points[:1] for s in subjects.values()])
        subjects_to_judge = [s for s in subjects.values() if s.points[0] in firsts]
        if not subjects_to_judge:
            return DedupVerdicts()
        signed = await asyncio.to_thread(
            sign, np.stack([firsts[subject.points[0]] for subject in subjects_to_judge])
        )
        async with self._db.transaction() as conn:
            judged = await duplicates.signatures(conn, self._container.id)
        nearby = NeighbourFinder(_joined(judged, subjects_to_judge, signed), self._threshold)
        near: dict[int, list[int]] = {}
        known: dict[int, int] = {}
        for start in range(0, len(subjects_to_judge), CHUNKS_PER_STEP):
            await self._ctx.checkpoint()
            step = slice(start, start + CHUNKS_PER_STEP)
            chunk_nos_of_step = [subject.chunk_no for subject in subjects_to_judge[step]]
            candidates = await asyncio.to_thread(
                nearby.of_each, chunk_nos_of_step, words(signed[step])
            )
            near |= await self._compared(subjects_to_judge[step], candidates, known)
        verdicts = judge(near, known)
        return DedupVerdicts(
            {s.chunk_no: row.tobytes() for s, row in zip(subjects_to_judge, signed, strict=True)},
            verdicts,
        )

    async def _compared(
        self,
        subjects: Sequence[Subject],
        candidates: Mapping[int, Sequence[int]],
        known: dict[int, int],
    ) -> dict[int, list[int]]:
        """The visible candidates that are really similar; stores the verdicts on them."""
        others = await self._subjects(
            {chunk_no for found in candidates.values() for chunk_no in found}
        )
        known.update((s.chunk_no, s.original) for s in others.values() if s.original is not None)
        involved = [s for s in subjects if candidates[s.chunk_no]]
        vectors = await self._vectors([s.points for s in [*involved, *others.values()]])

        def compare() -> dict[int, list[int]]:
            return {
                s.chunk_no: [
                    o
                    for o in candidates[s.chunk_no]
                    if o in others and self._alike(s, others[o], vectors)
                ]
                for s in subjects
            }

        return await asyncio.to_thread(compare)

    def _alike(self, one: Subject, other: Subject, vectors: Mapping[PointId, Vector]) -> bool:
        if one.same_as != other.same_as or len(one.points) != len(other.points):
            return False
        if not all(point in vectors for point in (*one.points, *other.points)):
            return False
        return alike(
            [vectors[p] for p in one.points], [vectors[p] for p in other.points], self._threshold
        )

    async def _subjects(self, chunk_nos: Sequence[int] | set[int]) -> dict[int, Subject]:
        if not chunk_nos:
            return {}
        async with self._db.transaction() as conn:
            rows = await duplicates.subjects(
                conn,
                self._container.id,
                sorted(chunk_nos),
                collection_id=self._container.space.collection_id,
            )
        return {row["chunk_no"]: Subject.of(row) for row in rows}

    async def _vectors(self, points: Sequence[Sequence[PointId]]) -> dict[PointId, Vector]:
        subjects_to_judge = list(dict.fromkeys(point for some in points for point in some))
        if not subjects_to_judge:
            return {}
        with cleanup.requeued():
            return await self._index.vectors(self._collection, subjects_to_judge)


def _joined(
    judged: Signatures,
    subjects_to_judge: Sequence[Subject],
    signed: np.ndarray[Any, np.dtype[np.uint8]],
) -> Signatures:
    """All signatures; those of this window replace older ones of the same chunks."""
    mine = np.array([s.chunk_no for s in subjects_to_judge], dtype=np.int64)
    older = ~np.isin(judged.chunk_nos, mine)
    return Signatures(
        chunk_nos=np.concatenate([judged.chunk_nos[older], mine]),
        originals=np.concatenate([judged.originals[older], np.full(len(mine), -1, np.int64)]),
        bits=np.concatenate([judged.bits[older], words(signed)]),
    )
