"""Writes that come while one is under way: together in one request, each with its own end."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import numpy as np
import pytest

from latent_core.domain.errors import Invalid, LatentError, Unavailable
from latent_core.domain.ids import PointId
from latent_core.vectors.edge.write_coalescer import MAX_POINTS, WriteCoalescer
from latent_core.vectors.port import Points

DEADLINE = 20.0


class Store:
    """Notes each write; waits at a gate; fails for the chunk_nos it is told to."""

    def __init__(self) -> None:
        self.writes: list[tuple[str, list[int]]] = []
        self.failing: dict[int, LatentError] = {}
        self.gate = asyncio.Event()

    async def write(self, collection: str, points: Points) -> None:
        assert len(points.vectors) == len(points.ids) == len(points.doc_ids)
        assert [int(row[0]) for row in points.vectors] == list(points.chunk_nos)
        self.writes.append((collection, list(points.chunk_nos)))
        await self.gate.wait()
        for chunk_no in points.chunk_nos:
            if chunk_no in self.failing:
                raise self.failing[chunk_no]


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def coalescer(store: Store) -> WriteCoalescer:
    return WriteCoalescer(store.write)


def points(*chunk_nos: int, dims: int = 4) -> Points:
    vectors = np.zeros((len(chunk_nos), dims), np.float32)
    vectors[:, 0] = chunk_nos
    ids = [PointId(uuid4()) for _ in chunk_nos]
    return Points(ids, vectors, [uuid4() for _ in chunk_nos], [1] * len(chunk_nos), list(chunk_nos))


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def begun(
    coalescer: WriteCoalescer, *chunk_nos: int, collection: str = "c"
) -> asyncio.Task[None]:
    task = asyncio.create_task(coalescer.upsert(collection, points(*chunk_nos)))
    await settle()
    return task


async def test_what_comes_while_one_is_under_way_goes_together_in_the_order_it_came(
    store: Store, coalescer: WriteCoalescer
) -> None:
    tasks = [await begun(coalescer, *chunk_nos) for chunk_nos in ((1,), (2, 3), (4,), (5,))]
    assert store.writes == [("c", [1])]
    store.gate.set()
    await asyncio.gather(*tasks)
    assert store.writes == [("c", [1]), ("c", [2, 3, 4, 5])]


async def test_collections_and_widths_are_kept_apart(
    store: Store, coalescer: WriteCoalescer
) -> None:
    tasks = [await begun(coalescer, 1), await begun(coalescer, 2, collection="d")]
    tasks.append(asyncio.create_task(coalescer.upsert("c", points(3, dims=8))))
    await settle()
    assert store.writes == [("c", [1]), ("d", [2]), ("c", [3])]
    store.gate.set()
    await asyncio.gather(*tasks)


async def test_a_request_has_a_bound_and_what_is_as_large_goes_by_itself(
    store: Store, coalescer: WriteCoalescer
) -> None:
    half = range(MAX_POINTS // 2)
    tasks = [await begun(coalescer, 1), *[await begun(coalescer, *half) for _ in range(3)]]
    tasks.append(await begun(coalescer, *range(MAX_POINTS)))
    store.gate.set()
    await asyncio.gather(*tasks)
    assert [len(chunk_nos) for _, chunk_nos in store.writes] == [
        1,
        MAX_POINTS,
        MAX_POINTS,
        MAX_POINTS // 2,
    ]


async def test_a_transient_error_is_raised_to_each_caller_as_its_own_exception(
    store: Store, coalescer: WriteCoalescer
) -> None:
    tasks = [await begun(coalescer, chunk_no) for chunk_no in (1, 2, 3)]
    store.failing[2] = Unavailable("away", retry_after=3.0)
    store.gate.set()
    first, *others = await asyncio.gather(*tasks, return_exceptions=True)
    assert first is None
    assert [type(error) for error in others] == [Unavailable, Unavailable]
    assert others[0] is not others[1]
    assert isinstance(others[0], Unavailable)
    assert others[0].details == {"retry_after": 3.0}
    assert len(store.writes) == 2


async def test_what_is_refused_fails_alone(store: Store, coalescer: WriteCoalescer) -> None:
    tasks = [await begun(coalescer, chunk_no) for chunk_no in (1, 2, 3, 4)]
    store.failing[3] = Invalid("refused")
    store.gate.set()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(end) for end in ends] == [type(None), type(None), Invalid, type(None)]
    assert store.writes[1:] == [("c", [2, 3, 4]), ("c", [2]), ("c", [3]), ("c", [4])]


async def test_who_is_cancelled_takes_nobody_along(store: Store, coalescer: WriteCoalescer) -> None:
    writing, *waiting = [await begun(coalescer, chunk_no) for chunk_no in (1, 2, 3, 4)]
    waiting[1].cancel()
    writing.cancel()
    await settle()
    store.gate.set()
    async with asyncio.timeout(DEADLINE):
        ends = await asyncio.gather(writing, *waiting, return_exceptions=True)
    kinds = [type(end) for end in ends]
    assert kinds == [asyncio.CancelledError, type(None), asyncio.CancelledError, type(None)]
    assert store.writes == [("c", [1]), ("c", [2, 4])]
