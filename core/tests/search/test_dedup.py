"""One hit a document, the rest listed under it."""

from __future__ import annotations

from uuid import UUID

from latent_core.search.ranking import (
    MAX_DUPLICATES,
    MAX_OTHERS,
    RankedCandidate,
    collapse,
    group,
)

A, B = UUID(int=1), UUID(int=2)


def test_each_document_appears_once_with_its_best_chunk() -> None:
    found = group(
        [
            RankedCandidate("c", 1, A, 0.5),
            RankedCandidate("c", 2, B, 0.7),
            RankedCandidate("c", 3, A, 0.9),
        ],
        by_document=True,
    )
    assert [(g.best.chunk_no, [o.chunk_no for o in g.others]) for g in found] == [(3, [1]), (2, [])]


def test_without_dedup_every_chunk_is_a_hit() -> None:
    found = group(
        [RankedCandidate("c", 1, A, 0.5), RankedCandidate("c", 3, A, 0.9)], by_document=False
    )
    assert [g.best.chunk_no for g in found] == [3, 1]


def test_ties_are_ordered_by_container_and_chunk_no() -> None:
    found = group(
        [RankedCandidate("z", 1, A, 0.5), RankedCandidate("a", 9, B, 0.5)], by_document=True
    )
    assert [g.best.container_id for g in found] == ["a", "z"]


def test_ties_are_ordered_by_rrf_before_anything_else() -> None:
    lower, upper = (
        RankedCandidate("a", 1, A, 0.5, rrf=0.1),
        RankedCandidate("z", 9, B, 0.5, rrf=0.2),
    )
    for by_document in (True, False):
        found = group([lower, upper], by_document=by_document)
        assert [g.best for g in found] == [upper, lower]


def test_the_list_of_others_is_bounded() -> None:
    found = group([RankedCandidate("c", n, A, 1 / (n + 1)) for n in range(50)], by_document=True)
    assert len(found[0].others) == MAX_OTHERS


def test_a_document_shows_several_passages_that_are_among_the_best_of_all() -> None:
    found = group(
        [RankedCandidate("c", n, A if n in (0, 2, 3, 9) else B, 1 - n / 10) for n in range(10)],
        by_document=True,
        passages=3,
        head=4,
    )
    shown = [([g.best.chunk_no, *(p.chunk_no for p in g.passages)], len(g.others)) for g in found]
    assert shown == [([0, 2, 3], 1), ([1], 5)]


C, D = UUID(int=3), UUID(int=4)


def collapsed(
    ranked: list[UUID], repeated: dict[UUID, UUID]
) -> list[tuple[UUID, float, list[UUID]]]:
    groups = group(
        [RankedCandidate("c", n, doc, 1 - n / 10) for n, doc in enumerate(ranked)], by_document=True
    )
    found = collapse(groups, repeated)
    return [(g.best.doc_id, g.best.score, [d.doc_id for d in g.duplicates]) for g in found]


def test_duplicates_are_listed_under_the_best_of_them() -> None:
    assert collapsed([B, C, A, D], {B: A, D: A}) == [(B, 1.0, [A, D]), (C, 0.9, [])]
    assert collapsed([A, B, C], {B: A}) == [(A, 1.0, [B]), (C, 0.8, [])]


def test_a_duplicate_stands_for_itself_when_its_original_is_no_candidate() -> None:
    assert collapsed([B, C], {B: A}) == [(B, 1.0, []), (C, 0.9, [])]


def test_documents_that_repeat_parts_of_each_other_stay_one_hit() -> None:
    assert collapsed([A, B, C], {A: B, B: A}) == [(A, 1.0, [B]), (C, 0.8, [])]
    assert collapsed([A, B, C], {A: B, B: C}) == [(A, 1.0, [B, C])]


def test_the_list_of_duplicates_is_bounded() -> None:
    many = [UUID(int=n) for n in range(100, 140)]
    ((_, _, duplicates),) = collapsed([A, *many], dict.fromkeys(many, A))
    assert len(duplicates) == MAX_DUPLICATES
