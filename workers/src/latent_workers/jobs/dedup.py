"""Dedup: find the chunks of a container that repeat an earlier one (DESIGN §9).

Near-duplicates are marked, never removed: they keep text, page, keywords and vector, and stand for
themselves again when their original goes. A turn judges a window of what was left to be judged; then the
job goes to the end of its container's line, until nothing is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from latent_core.domain.chunk import BlockType, Modality
from latent_core.domain.ids import PointId, point_id
from latent_core.domain.vector import Vector
from latent_core.queue.comeback import requeue_with
from latent_core.queue.context import JobContext
from latent_core.queue.finish import finish, hold
from latent_core.registry import containers, likenesses
from latent_core.registry.connection import Connection
from latent_core.registry.containers import Container
from latent_core.registry.likenesses import Pending, Signatures
from latent_workers.deps import Deps
from latent_workers.jobs import emptied
from latent_workers.likeness import Nearby, alike, judge, sign, words

ORDS_A_TURN: Final = 2048
RANGES_A_LOOK: Final = 500
CHUNKS_A_STEP: Final = 128
"""Compared between two looks at the lease."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A visible chunk, as judging sees it."""

    ord: int
    points: tuple[PointId, ...]
    """One a window."""
    same_as: str | None
    """What it may be like at most, whatever its vector says: a table is embedded by a summary, which two
    tables of different rows share."""
    original: int | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Subject:
        windows = range(row["windows"])
        table = row["block_type"] == BlockType.TABLE.value
        return cls(
            ord=row["ord"],
            points=tuple(point_id(row["id"], row["generation"], w) for w in windows),
            same_as=row["content_hash"] if table else None,
            original=row["original"],
        )


@dataclass(frozen=True, slots=True)
class Window:
    """What one turn is about."""

    done: list[Pending]
    """Ranges it covers."""
    shorter: Pending | None
    """What is left of the last range, when it covers only a part."""
    ords: list[int]


@dataclass(slots=True)
class Verdicts:
    """What a turn found out."""

    signed: dict[int, bytes] = field(default_factory=dict)
    originals: dict[int, int] = field(default_factory=dict)


async def dedup(ctx: JobContext, deps: Deps) -> None:
    """One turn, and the next one enqueued or the end."""
    async with deps.stack.db.transaction() as conn:
        container = await containers.get(conn, ctx.job.container_id)
    if container is None:
        return
    window = await ctx.transact(lambda conn: _begin(conn, ctx))
    verdicts = await _Turn(ctx, deps, container).judge(window.ords)
    await ctx.checkpoint()
    await ctx.transact(lambda conn: _end(conn, ctx, window, verdicts))


async def _begin(conn: Connection, ctx: JobContext) -> Window:
    """Choose the window. What repeats chunks in it, which may be gone, is judged anew."""
    container_id = ctx.job.container_id
    await hold(conn, ctx.job)
    if await containers.hold(conn, container_id) is None:
        return Window([], None, [])
    pending = await likenesses.pending(conn, container_id, RANGES_A_LOOK)
    window = _window(pending)
    await likenesses.drop_dead(conn, container_id, window.ords)
    freed = await likenesses.release(conn, container_id, window.ords)
    await likenesses.leave(conn, container_id, _uncovered(freed, pending))
    return window


def _window(pending: Sequence[Pending]) -> Window:
    """The lowest ords that are pending, at most ``ORDS_A_TURN`` of them."""
    window = Window([], None, [])
    for one in pending:
        room = ORDS_A_TURN - len(window.ords)
        if one.last - one.first >= room:
            window.ords.extend(range(one.first, one.first + room))
            return Window(window.done, Pending(one.id, one.first + room, one.last), window.ords)
        window.ords.extend(range(one.first, one.last + 1))
        window.done.append(one)
    return window


def _uncovered(ords: Sequence[int], pending: Sequence[Pending]) -> list[int]:
    return [o for o in ords if not any(one.first <= o <= one.last for one in pending)]


async def _end(conn: Connection, ctx: JobContext, window: Window, verdicts: Verdicts) -> None:
    """Note the verdicts and what is left to do. Whatever repeats a chunk that is no original is judged again."""
    container_id = ctx.job.container_id
    await hold(conn, ctx.job)
    if await containers.hold(conn, container_id) is None:
        await finish(conn, ctx.job)
        return
    await likenesses.keep(conn, container_id, verdicts.signed, verdicts.originals)
    freed = await likenesses.release(conn, container_id, list(verdicts.originals))
    await likenesses.leave(conn, container_id, freed)
    await likenesses.settle(conn, window.done, window.shorter)
    if await likenesses.waiting(conn, container_id):
        await requeue_with(conn, ctx.job, {})
    else:
        await finish(conn, ctx.job)


class _Turn:
    """Compares the chunks of one window with what they may be like."""

    def __init__(self, ctx: JobContext, deps: Deps, container: Container) -> None:
        self._ctx = ctx
        self._db = deps.stack.db
        self._index = deps.stack.vectors
        self._container = container
        self._collection = container.space.collection(Modality.TEXT.value)
        self._threshold = container.manifest.dedup.semantic_threshold

    async def judge(self, ords: Sequence[int]) -> Verdicts:
        subjects = await self._subjects(ords)
        firsts = await self._vectors([s.points[:1] for s in subjects.values()])
        wanted = [s for s in subjects.values() if s.points[0] in firsts]
        if not wanted:
            return Verdicts()
        signed = await asyncio.to_thread(
            sign, np.stack([firsts[subject.points[0]] for subject in wanted])
        )
        async with self._db.transaction() as conn:
            judged = await likenesses.signatures(conn, self._container.id)
        nearby = Nearby(_joined(judged, wanted, signed), self._threshold)
        near: dict[int, list[int]] = {}
        known: dict[int, int] = {}
        for start in range(0, len(wanted), CHUNKS_A_STEP):
            await self._ctx.checkpoint()
            step = slice(start, start + CHUNKS_A_STEP)
            ords_of_step = [subject.ord for subject in wanted[step]]
            candidates = await asyncio.to_thread(nearby.of_each, ords_of_step, words(signed[step]))
            near |= await self._compared(wanted[step], candidates, known)
        verdicts = judge(near, known)
        return Verdicts(
            {s.ord: row.tobytes() for s, row in zip(wanted, signed, strict=True)}, verdicts
        )

    async def _compared(
        self,
        subjects: Sequence[Subject],
        candidates: Mapping[int, Sequence[int]],
        known: dict[int, int],
    ) -> dict[int, list[int]]:
        """Those of the candidates that are visible and really alike; notes the verdicts on them."""
        others = await self._subjects({ord_ for found in candidates.values() for ord_ in found})
        known.update((s.ord, s.original) for s in others.values() if s.original is not None)
        involved = [s for s in subjects if candidates[s.ord]]
        vectors = await self._vectors([s.points for s in [*involved, *others.values()]])

        def compare() -> dict[int, list[int]]:
            return {
                s.ord: [
                    o
                    for o in candidates[s.ord]
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

    async def _subjects(self, ords: Sequence[int] | set[int]) -> dict[int, Subject]:
        if not ords:
            return {}
        async with self._db.transaction() as conn:
            rows = await likenesses.subjects(
                conn,
                self._container.id,
                sorted(ords),
                stored_in=self._container.space.stored_in,
            )
        return {row["ord"]: Subject.of(row) for row in rows}

    async def _vectors(self, points: Sequence[Sequence[PointId]]) -> dict[PointId, Vector]:
        wanted = list(dict.fromkeys(point for some in points for point in some))
        if not wanted:
            return {}
        with emptied.comes_back():
            return await self._index.vectors(self._collection, wanted)


def _joined(
    judged: Signatures, wanted: Sequence[Subject], signed: np.ndarray[Any, np.dtype[np.uint8]]
) -> Signatures:
    """All signatures, those of this window instead of older ones of the same chunks."""
    mine = np.array([s.ord for s in wanted], dtype=np.int64)
    older = ~np.isin(judged.ords, mine)
    return Signatures(
        ords=np.concatenate([judged.ords[older], mine]),
        originals=np.concatenate([judged.originals[older], np.full(len(mine), -1, np.int64)]),
        bits=np.concatenate([judged.bits[older], words(signed)]),
    )
