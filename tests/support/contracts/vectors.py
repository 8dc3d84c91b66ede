"""What every ``VectorIndex`` must do. An adapter's tests inherit ``VectorIndexContract``.

The subclass gives a fixture ``index`` with an open ``VectorIndex``, of any scope, and marks itself
with the loop scope of that fixture. Every test works in collections of its own.
"""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from latent_core.domain.errors import Conflict, Invalid, NotFound
from latent_core.domain.ids import PointId
from latent_core.vectors.port import Points, StoredPoint, VectorIndex
from tests.support.oracles.vector_oracle import (
    DOCS,
    STEPS,
    TOLERANCE,
    Oracle,
    Step,
    named,
    points_of,
    random_vectors,
    take_step,
    unit,
)


async def fresh(index: VectorIndex, dims: int) -> str:
    """A new, empty collection of this test's own."""
    name = f"c_test_text_{uuid4().hex[:12]}"
    await index.create_collection(name, dims)
    return name


class VectorIndexContract:
    """Inherit, and give a fixture ``index``."""

    async def test_a_stored_point_is_found_with_its_chunk_no_and_score(
        self, index: VectorIndex
    ) -> None:
        name = await fresh(index, 3)
        await index.upsert(name, points_of(unit([[1, 0, 0], [1, 1, 0], [0, 0, 1]]), first=7))
        hits = await index.search(name, unit([[1, 0, 0]])[0], 2)
        assert hits.chunk_nos.tolist() == [7, 8]
        np.testing.assert_allclose(hits.scores, [1.0, 0.70710677], atol=TOLERANCE)
        assert hits.chunk_nos.dtype == np.int64
        assert hits.scores.dtype == np.float32

    async def test_windows_of_one_chunk_are_each_found_under_its_chunk_no(
        self, index: VectorIndex
    ) -> None:
        name = await fresh(index, 2)
        points = points_of(unit([[1, 0], [1, 0.1], [0, 1]]))
        await index.upsert(
            name, Points(points.ids, points.vectors, points.doc_ids, points.generations, [5, 5, 6])
        )
        assert (await index.search(name, unit([[1, 0]])[0], 3)).chunk_nos.tolist() == [5, 5, 6]

    async def test_equal_scores_come_in_the_order_of_their_ords(self, index: VectorIndex) -> None:
        name = await fresh(index, 2)
        chunk_nos = np.random.default_rng(4).permutation(300)
        same = points_of(unit([[1, 1]] * 300))
        tied = Points(same.ids, same.vectors, same.doc_ids, same.generations, chunk_nos.tolist())
        await index.upsert(name, tied)
        query = unit([[1, 0]])[0]
        assert (await index.search(name, query, 10)).chunk_nos.tolist() == list(range(10))
        assert (await index.search(name, query, 299)).chunk_nos.tolist() == list(range(299))

    async def test_ties_at_the_cut_do_not_depend_on_history(self, index: VectorIndex) -> None:
        name = await fresh(index, 2)
        points = points_of(unit([[1, 1]] * 60))
        await index.upsert(name, points)
        first = await index.search(name, unit([[1, 0]])[0], 20)
        await index.delete(name, named("doc"))
        backwards = Points(
            points.ids[::-1],
            points.vectors,
            points.doc_ids,
            points.generations,
            points.chunk_nos[::-1],
        )
        await index.upsert(name, backwards)
        again = await index.search(name, unit([[1, 0]])[0], 20)
        assert again.chunk_nos.tolist() == first.chunk_nos.tolist() == list(range(20))

    async def test_more_hits_than_points_may_be_requested(self, index: VectorIndex) -> None:
        name = await fresh(index, 2)
        await index.upsert(name, points_of(unit([[1, 0], [0, 1]])))
        for k in (3, 1000, 10**12):
            assert (await index.search(name, unit([[1, 0]])[0], k)).chunk_nos.tolist() == [0, 1]
        assert not len((await index.search(name, unit([[1, 0]])[0], 0)).chunk_nos)

    async def test_an_empty_collection_answers_nothing(self, index: VectorIndex) -> None:
        name = await fresh(index, 2)
        hits = await index.search(name, unit([[1, 0]])[0], 5)
        assert (len(hits.chunk_nos), len(hits.scores)) == (0, 0)
        assert await index.count(name) == 0
        assert await index.scroll(name, after=None, limit=5) == []
        assert await index.vectors(name, [PointId(named("x"))]) == {}

    async def test_only_allowed_points_are_found(self, index: VectorIndex) -> None:
        name = await fresh(index, 8)
        points = points_of(random_vectors(50, 8, seed=1))
        await index.upsert(name, points)
        allowed = [*points.ids[10:14], PointId(named("never stored"))]
        hits = await index.search(name, points.vectors[0], 10, allowed=allowed)
        assert sorted(hits.chunk_nos.tolist()) == [10, 11, 12, 13]
        nothing = await index.search(name, points.vectors[0], 10, allowed=[])
        assert not len(nothing.chunk_nos)

    async def test_many_allowed_points_give_the_same_as_numpy(self, index: VectorIndex) -> None:
        name, oracle = await fresh(index, 8), Oracle()
        points = points_of(random_vectors(6000, 8, seed=2))
        await index.upsert(name, points)
        oracle.upsert(points)
        query = random_vectors(1, 8, seed=3)[0]
        nearest_last = np.argsort(points.vectors @ query)
        for chosen in (nearest_last[:4500], nearest_last[::2], nearest_last[-900:]):
            allowed = [points.ids[i] for i in chosen]
            oracle.check(await index.search(name, query, 50, allowed=allowed), query, 50, allowed)

    async def test_storing_a_point_again_replaces_it(self, index: VectorIndex) -> None:
        name = await fresh(index, 2)
        points = points_of(unit([[1, 0]]))
        await index.upsert(name, points)
        moved = Points(points.ids, unit([[0, 1]]), [named("other")], [2], [9])
        await index.upsert(name, moved)
        hits = await index.search(name, unit([[0, 1]])[0], 5)
        assert hits.chunk_nos.tolist() == [9]
        assert await index.count(name, doc_id=named("doc")) == 0
        assert await index.count(name, doc_id=named("other"), generation=2) == 1

    async def test_a_large_write_is_stored_whole(self, index: VectorIndex) -> None:
        name = await fresh(index, 16)
        points = points_of(random_vectors(3000, 16, seed=5))
        await index.upsert(name, points)
        assert await index.count(name) == 3000
        found = await index.vectors(name, points.ids)
        assert set(found) == set(points.ids)
        np.testing.assert_allclose(
            np.stack([found[one] for one in points.ids]), points.vectors, atol=TOLERANCE
        )

    async def test_vectors_leaves_out_what_is_not_there(self, index: VectorIndex) -> None:
        name = await fresh(index, 2)
        points = points_of(unit([[1, 0], [0, 1]]))
        await index.upsert(name, points)
        found = await index.vectors(name, [points.ids[1], PointId(named("absent"))])
        assert list(found) == [points.ids[1]]
        assert await index.vectors(name, []) == {}

    async def test_delete_takes_all_older_or_one_generation(self, index: VectorIndex) -> None:
        name = await fresh(index, 2)
        for generation in (1, 2, 3):
            vectors = unit([[1, generation]] * generation)
            await index.upsert(name, points_of(vectors, generation=generation))
        await index.upsert(name, points_of(unit([[1, 1]]), doc="bystander"))
        assert await index.delete(name, named("doc"), only=2) == 2
        assert await index.delete(name, named("doc"), below=3) == 1
        assert await index.count(name, doc_id=named("doc")) == 3
        assert await index.delete(name, named("doc")) == 3
        assert await index.delete(name, named("doc")) == 0
        assert await index.count(name) == 1

    async def test_delete_empties_a_document_of_any_size(self, index: VectorIndex) -> None:
        name = await fresh(index, 2)
        await index.upsert(name, points_of(random_vectors(5000, 2, seed=6)))
        assert await index.delete(name, named("doc")) == 5000
        assert await index.count(name) == 0
        assert not len((await index.search(name, unit([[1, 0]])[0], 5)).chunk_nos)

    async def test_delete_refuses_two_choices_at_once(self, index: VectorIndex) -> None:
        name = await fresh(index, 2)
        with pytest.raises(Invalid):
            await index.delete(name, named("doc"), below=3, only=1)

    async def test_delete_points_takes_exactly_the_points_with_these_ids(
        self, index: VectorIndex
    ) -> None:
        name = await fresh(index, 2)
        points = points_of(random_vectors(700, 2, seed=9))
        await index.upsert(name, points)
        doomed = [*points.ids[::2], PointId(named("absent"))]
        await index.delete_points(name, doomed)
        assert {one.id for one in await index.scroll(name, after=None, limit=800)} == set(
            points.ids[1::2]
        )
        found = await index.search(name, points.vectors[0], 700)
        assert sorted(found.chunk_nos.tolist()) == points.chunk_nos[1::2]
        await index.delete_points(name, doomed)
        await index.delete_points(name, [])
        assert await index.count(name) == 350

    async def test_count_tells_documents_and_generations_apart(self, index: VectorIndex) -> None:
        name = await fresh(index, 2)
        await index.upsert(name, points_of(unit([[1, 0]] * 3), doc="a", generation=1))
        await index.upsert(name, points_of(unit([[1, 0]] * 2), doc="a", generation=2))
        await index.upsert(name, points_of(unit([[1, 0]] * 4), doc="b", generation=2))
        assert await index.count(name) == 9
        assert await index.count(name, doc_id=named("a")) == 5
        assert await index.count(name, doc_id=named("a"), generation=2) == 2
        assert await index.count(name, generation=2) == 6

    async def test_scroll_walks_all_points_in_id_order(self, index: VectorIndex) -> None:
        name, oracle = await fresh(index, 2), Oracle()
        points = points_of(random_vectors(2500, 2, seed=7), first=100)
        await index.upsert(name, points)
        oracle.upsert(points)
        expected = oracle.stored()
        assert await index.scroll(name, after=None, limit=3000) == expected
        walked: list[StoredPoint] = []
        while page := await index.scroll(name, after=walked[-1].id if walked else None, limit=700):
            assert len(page) <= 700
            walked += page
        assert walked == expected
        last = PointId(UUID(int=(1 << 128) - 1))
        assert await index.scroll(name, after=last, limit=5) == []

    async def test_creating_again_is_silent_and_keeps_the_points(self, index: VectorIndex) -> None:
        name = await fresh(index, 2)
        await index.upsert(name, points_of(unit([[1, 0]])))
        await index.create_collection(name, 2)
        assert await index.count(name) == 1

    async def test_creating_with_other_dimensions_is_a_conflict(self, index: VectorIndex) -> None:
        name = await fresh(index, 2)
        with pytest.raises(Conflict, match=r"2.*3"):
            await index.create_collection(name, 3)

    async def test_many_may_create_the_same_collection_at_once(self, index: VectorIndex) -> None:
        name = f"c_test_text_{uuid4().hex[:12]}"
        await asyncio.gather(*(index.create_collection(name, 2) for _ in range(5)))
        assert (await index.collections()).count(name) == 1

    async def test_a_dropped_collection_is_gone_and_may_be_made_anew(
        self, index: VectorIndex
    ) -> None:
        name = await fresh(index, 2)
        await index.upsert(name, points_of(unit([[1, 0]])))
        assert name in await index.collections()
        await index.drop_collection(name)
        assert name not in await index.collections()
        await index.drop_collection(name)
        await index.create_collection(name, 5)
        assert await index.count(name) == 0

    async def test_a_missing_collection_is_not_found_but_holds_nothing_to_delete(
        self, index: VectorIndex
    ) -> None:
        name, vector = f"c_test_text_{uuid4().hex[:12]}", unit([[1, 0]])
        calls = [
            index.search(name, vector[0], 1),
            index.upsert(name, points_of(vector)),
            index.upsert(name, points_of(vector[:0])),
            index.vectors(name, []),
            index.count(name),
            index.scroll(name, after=None, limit=1),
        ]
        for call in calls:
            with pytest.raises(NotFound, match=name):
                await call
        assert await index.delete(name, named("doc")) == 0
        await index.delete_points(name, [PointId(named("absent"))])

    async def test_vectors_of_other_dimensions_are_refused_with_both_numbers(
        self, index: VectorIndex
    ) -> None:
        name = await fresh(index, 4)
        with pytest.raises(Invalid, match=r"4.*3"):
            await index.upsert(name, points_of(random_vectors(2, 3, seed=8)))
        with pytest.raises(Invalid, match=r"4.*3"):
            await index.search(name, random_vectors(1, 3, seed=8)[0], 1)
        assert await index.count(name) == 0

    async def test_numbers_that_are_not_finite_are_refused(self, index: VectorIndex) -> None:
        name = await fresh(index, 2)
        bad = np.array([[np.nan, 1.0]], dtype=np.float32)
        with pytest.raises(Invalid):
            await index.upsert(name, points_of(bad))
        with pytest.raises(Invalid):
            await index.search(name, bad[0], 1)

    async def test_points_of_uneven_columns_are_refused(self, index: VectorIndex) -> None:
        name = await fresh(index, 2)
        whole = points_of(unit([[1, 0], [0, 1]]))
        uneven = Points(
            whole.ids, whole.vectors, whole.doc_ids[:1], whole.generations, whole.chunk_nos
        )
        with pytest.raises(Invalid):
            await index.upsert(name, uneven)

    @given(steps=STEPS)
    @settings(
        max_examples=25,
        deadline=None,
        # The suite runs for one implementation after the other: each is an executor of its own.
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,
            HealthCheck.differing_executors,
        ],
    )
    async def test_any_history_gives_what_numpy_gives(
        self, index: VectorIndex, steps: list[Step]
    ) -> None:
        name, oracle = "c_test_text_history", Oracle()
        await index.create_collection(name, 4)
        for doc in DOCS:
            await index.delete(name, doc)
        for step in steps:
            await take_step(index, name, oracle, step)
        assert await index.scroll(name, after=None, limit=100) == oracle.stored()
