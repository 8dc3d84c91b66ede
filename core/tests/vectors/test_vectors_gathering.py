"""Writes that come while one is under way: together in one request, each with its own end."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import numpy as np
import pytest

from latent_core.domain.errors import Invalid, LatentError, Unavailable
from latent_core.domain.ids import PointId
from latent_core.vectors.gathering import MOST_POINTS, Gathering
from latent_core.vectors.port import Points

DEADLINE = 20.0


class Store:
    """Notes each write; waits at a gate; fails for the ords it is told to."""

    def __init__(self) -> None:
        self.writes: list[tuple[str, list[int]]] = []
        self.failing: dict[int, LatentError] = {}
        self.gate = asyncio.Event()

    async def write(self, collection: str, points: Points) -> None:
        assert len(points.vectors) == len(points.ids) == len(points.doc_ids)
        assert [int(row[0]) for row in points.vectors] == list(points.ords)
        self.writes.append((collection, list(points.ords)))
        await self.gate.wait()
        for ord_ in points.ords:
            if ord_ in self.failing:
                raise self.failing[ord_]


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def gathering(store: Store) -> Gathering:
    return Gathering(store.write)


def points(*ords: int, dims: int = 4) -> Points:
    vectors = np.zeros((len(ords), dims), np.float32)
    vectors[:, 0] = ords
    ids = [PointId(uuid4()) for _ in ords]
    return Points(ids, vectors, [uuid4() for _ in ords], [1] * len(ords), list(ords))


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def begun(gathering: Gathering, *ords: int, collection: str = "c") -> asyncio.Task[None]:
    task = asyncio.create_task(gathering.upsert(collection, points(*ords)))
    await settle()
    return task


async def test_what_comes_while_one_is_under_way_goes_together_in_the_order_it_came(
    store: Store, gathering: Gathering
) -> None:
    tasks = [await begun(gathering, *ords) for ords in ((1,), (2, 3), (4,), (5,))]
    assert store.writes == [("c", [1])]
    store.gate.set()
    await asyncio.gather(*tasks)
    assert store.writes == [("c", [1]), ("c", [2, 3, 4, 5])]


async def test_collections_and_widths_are_kept_apart(store: Store, gathering: Gathering) -> None:
    tasks = [await begun(gathering, 1), await begun(gathering, 2, collection="d")]
    tasks.append(asyncio.create_task(gathering.upsert("c", points(3, dims=8))))
    await settle()
    assert store.writes == [("c", [1]), ("d", [2]), ("c", [3])]
    store.gate.set()
    await asyncio.gather(*tasks)


async def test_a_request_has_a_bound_and_what_is_as_large_goes_by_itself(
    store: Store, gathering: Gathering
) -> None:
    half = range(MOST_POINTS // 2)
    tasks = [await begun(gathering, 1), *[await begun(gathering, *half) for _ in range(3)]]
    tasks.append(await begun(gathering, *range(MOST_POINTS)))
    store.gate.set()
    await asyncio.gather(*tasks)
    assert [len(ords) for _, ords in store.writes] == [
        1,
        MOST_POINTS,
        MOST_POINTS,
        MOST_POINTS // 2,
    ]


async def test_trouble_that_passes_is_told_to_all_and_each_has_an_error_of_its_own(
    store: Store, gathering: Gathering
) -> None:
    tasks = [await begun(gathering, ord_) for ord_ in (1, 2, 3)]
    store.failing[2] = Unavailable("away", retry_after=3.0)
    store.gate.set()
    first, *others = await asyncio.gather(*tasks, return_exceptions=True)
    assert first is None
    assert [type(error) for error in others] == [Unavailable, Unavailable]
    assert others[0] is not others[1]
    assert isinstance(others[0], Unavailable)
    assert others[0].details == {"retry_after": 3.0}
    assert len(store.writes) == 2


async def test_what_is_refused_fails_alone(store: Store, gathering: Gathering) -> None:
    tasks = [await begun(gathering, ord_) for ord_ in (1, 2, 3, 4)]
    store.failing[3] = Invalid("refused")
    store.gate.set()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(end) for end in ends] == [type(None), type(None), Invalid, type(None)]
    assert store.writes[1:] == [("c", [2, 3, 4]), ("c", [2]), ("c", [3]), ("c", [4])]


async def test_who_is_cancelled_takes_nobody_along(store: Store, gathering: Gathering) -> None:
    writing, *waiting = [await begun(gathering, ord_) for ord_ in (1, 2, 3, 4)]
    waiting[1].cancel()
    writing.cancel()
    await settle()
    store.gate.set()
    async with asyncio.timeout(DEADLINE):
        ends = await asyncio.gather(writing, *waiting, return_exceptions=True)
    kinds = [type(end) for end in ends]
    assert kinds == [asyncio.CancelledError, type(None), asyncio.CancelledError, type(None)]
    assert store.writes == [("c", [1]), ("c", [2, 4])]
