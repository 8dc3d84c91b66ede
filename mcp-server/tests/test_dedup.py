"""One hit a document, the rest listed under it."""

from __future__ import annotations

from uuid import UUID

from latent_gateway.search.dedup import MAX_OTHERS, Candidate, group

A, B = UUID(int=1), UUID(int=2)


def test_each_document_appears_once_with_its_best_chunk() -> None:
    found = group(
        [Candidate("c", 1, A, 0.5), Candidate("c", 2, B, 0.7), Candidate("c", 3, A, 0.9)],
        by_document=True,
    )
    assert [(g.best.ord, [o.ord for o in g.others]) for g in found] == [(3, [1]), (2, [])]


def test_without_dedup_every_chunk_is_a_hit() -> None:
    found = group([Candidate("c", 1, A, 0.5), Candidate("c", 3, A, 0.9)], by_document=False)
    assert [g.best.ord for g in found] == [3, 1]


def test_ties_are_ordered_by_container_and_ord() -> None:
    found = group([Candidate("z", 1, A, 0.5), Candidate("a", 9, B, 0.5)], by_document=True)
    assert [g.best.container_id for g in found] == ["a", "z"]


def test_the_list_of_others_is_bounded() -> None:
    found = group([Candidate("c", n, A, 1 / (n + 1)) for n in range(50)], by_document=True)
    assert len(found[0].others) == MAX_OTHERS
