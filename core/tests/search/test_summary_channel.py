"""The channel of summaries: what it finds, what it stands for, and what it leaves as it was."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import numpy as np
import pytest

from latent_core.bm25.port import KeywordHits, TermUse
from latent_core.db.containers import Container
from latent_core.domain.ids import PointId
from latent_core.domain.manifest.model import Fusion, FusionMethod, Manifest, SearchMode
from latent_core.search.fuse import RankedList, fuse
from latent_core.search.judge import BEYOND, RelevanceJudge
from latent_core.search.plan import make_plan
from latent_core.search.relevance import CosineScale
from latent_core.search.rounds import ChannelCandidates, vector_channel
from latent_core.search.summaries import for_documents, summary_candidates
from latent_core.vectors.port import VectorHits, VectorIndex
from latent_core.wire.search import SearchRequest

SCALE = CosineScale(unrelated=0.1, alike=0.7)


class Points:
    """Points by descending cosine, each of one chunk."""

    def __init__(self, chunk_nos: Sequence[int]) -> None:
        self.chunk_nos = chunk_nos
        self.depths: list[int] = []

    async def search(
        self, collection: str, vector: object, k: int, *, allowed: Sequence[PointId] | None = None
    ) -> VectorHits:
        self.depths.append(k)
        found = self.chunk_nos[:k]
        cosines = np.linspace(0.9, 0.1, 100, dtype=np.float32)
        return VectorHits(np.array(found, np.int64), cosines[: len(found)])


CONTAINER = cast(Container, SimpleNamespace(space=SimpleNamespace(collection=lambda: "c")))
QUERY = np.zeros(2, np.float32)


async def nearest(index: Points, depth: int, summaries: Sequence[int]) -> Any:
    return await vector_channel(
        cast(VectorIndex, index), CONTAINER, QUERY, depth, None, np.array(summaries, np.int64)
    )


@pytest.mark.asyncio
@pytest.mark.parametrize("depth", [1, 2, 3, 5, 8])
async def test_the_vector_channel_finds_the_same_originals_however_many_summaries_are_nearer(
    depth: int,
) -> None:
    originals, summaries = [2, 4, 6, 2, 8], [1, 3, 5, 7, 9]
    alone = await nearest(Points(originals), depth, [])
    mixed = await nearest(Points([1, 3, 2, 5, 7, 9, 4, 6, 2, 8]), depth, summaries)
    assert mixed.originals.chunk_nos.tolist() == alone.originals.chunk_nos.tolist()
    assert mixed.originals.exhausted == (depth > len(originals))
    assert mixed.summaries.chunk_nos.tolist()[:2] == [1, 3]


@pytest.mark.asyncio
async def test_a_container_without_summaries_is_searched_once() -> None:
    index = Points([2, 4, 6, 8])
    found = await nearest(index, 3, [])
    assert index.depths == [3]
    assert found.summaries.chunk_nos.tolist() == []


def near(cosines: dict[int, float], *, exhausted: bool = True) -> ChannelCandidates:
    return ChannelCandidates(
        np.array(list(cosines), np.int64), np.array(list(cosines.values())), exhausted=exhausted
    )


def words(scores: dict[int, float]) -> KeywordHits:
    numbers, values = np.array(list(scores), np.int64), np.array(list(scores.values()))
    return KeywordHits(numbers, values, values, len(scores), 9, (TermUse("~pkce", 1, 1, 8.0),), 1)


def test_summaries_are_ordered_by_what_cosine_and_words_say_together() -> None:
    found = summary_candidates(near({1: 0.6, 2: 0.5, 3: 0.2}), words({2: 6.0, 4: 1.0}), 10, SCALE)
    assert found.chunk_nos.tolist() == [2, 1, 4, 3]
    assert all(0 <= score <= 1 for score in found.scores)
    assert found.exhausted


def test_one_way_is_enough_and_none_finds_nothing() -> None:
    by_words = summary_candidates(None, words({2: 6.0}), 10, None)
    by_meaning = summary_candidates(near({2: 0.6}, exhausted=False), None, 10, SCALE)
    neither = summary_candidates(None, None, 10, None)
    assert by_words.chunk_nos.tolist() == by_meaning.chunk_nos.tolist() == [2]
    assert by_words.exhausted
    assert not by_meaning.exhausted
    assert not len(neither.chunk_nos)


A, B = uuid4(), uuid4()
DOCUMENTS: dict[int, UUID] = {1: A, 2: A, 3: B, 11: A, 12: A, 13: B}


def lists(**scores: dict[int, float]) -> dict[str, RankedList[int]]:
    return {name: RankedList(list(its), list(its.values())) for name, its in scores.items()}


def test_a_summary_stands_for_the_best_passage_of_its_document() -> None:
    found = for_documents(
        lists(
            bm25={2: 9.0, 1: 2.0}, vector={2: 0.7, 1: 0.6}, summaries={13: 0.9, 12: 0.8, 11: 0.7}
        ),
        DOCUMENTS,
        Fusion(),
    )
    assert found["summaries"].keys == [13, 2], "that of B has no passage; A counts once"
    assert found["summaries"].scores == [0.9, 0.8]


@pytest.mark.parametrize("method", list(FusionMethod))
def test_every_fusion_lifts_a_passage_whose_summary_matches_by_the_weight_of_the_channel(
    method: FusionMethod,
) -> None:
    found = lists(
        bm25={1: 5.0, 3: 5.0, 2: 1.0}, vector={3: 0.6, 1: 0.6, 2: 0.2}, summaries={3: 0.9, 2: 0.1}
    )
    without = fuse(found, Fusion(method=method, weights={"summaries": 0.0}))
    light = fuse(found, Fusion(method=method, weights={"summaries": 0.1}))
    heavy = fuse(found, Fusion(method=method, weights={"summaries": 5.0}))
    margin = [
        next(c.score for c in order if c.key == 3) - next(c.score for c in order if c.key == 1)
        for order in (without, light, heavy)
    ]
    assert margin[0] < margin[1] < margin[2]
    assert all(0 <= c.score <= 1 for order in (without, light, heavy) for c in order)


def test_a_hit_is_as_relevant_as_its_summary_and_nothing_beyond_is_more_than_the_last_one() -> None:
    judge = RelevanceJudge(
        cosines={1: 0.6, 2: 0.1},
        cosine_end=None,
        cosine_scale=SCALE,
        scores={},
        score_end=0.0,
        word_scale=None,
        summaries={2: 0.8, 13: 0.7},
        summary_end=0.4,
    )
    passage, lifted, summary, beyond = judge.relevances([1, 2, 13, BEYOND])
    assert passage is not None
    assert passage > 0.8
    assert (lifted, summary, beyond) == (0.8, 0.7, 0.4)
    assert not judge.nothing_beyond_reaches(0.3)


def container(
    name: str = "c", *, enabled: bool = True, held: bool = True, weight: float = 0.2
) -> Any:
    block = {"enabled": enabled, "provider": "tests/writer", "weight": weight}
    return SimpleNamespace(
        id=name,
        manifest=Manifest(id=name, name=name, summaries=block),
        space=SimpleNamespace(embedder="local", version="1"),
        chunks_by_language={"english": 9},
        is_empty=False,
        has_summaries=held,
    )


def channels(of: Any = None, **fields: Any) -> tuple[str, ...]:
    of = of or container()
    request = SearchRequest(**{"query": "how to configure pkce", "top_k": 5, **fields})
    plan = make_plan(request, {of.id: of}, [of.id], 1.0, image_text=fields.get("image_ref") or "")
    return plan.containers[0].channels


def test_summaries_are_searched_by_a_query_in_words_where_there_are_any_and_the_manifest_says_so() -> (
    None
):
    assert channels() == ("bm25", "vector", "summaries")
    assert channels(mode=SearchMode.SEMANTIC) == ("vector", "summaries")
    assert channels(mode=SearchMode.LEXICAL) == ("bm25", "summaries")
    for of in (container(enabled=False), container(held=False), container(weight=0.0)):
        assert "summaries" not in channels(of)


@pytest.mark.parametrize(
    "fields",
    [
        {"must_terms": ["PKCE"]},
        {"regexes": ["PK.E"]},
        {"path_like": "*.md"},
        {"query": '"code verifier"'},
        {"image_ref": "page://x/1"},
        {"mode": SearchMode.CROSSMODAL},
        {"fusion": Fusion(weights={"summaries": 0.0})},
    ],
)
def test_patterns_quotes_images_and_a_weight_of_0_search_originals_only(
    fields: dict[str, Any],
) -> None:
    assert "summaries" not in channels(**fields)


def test_the_weight_is_the_manifests_unless_the_request_names_one() -> None:
    def weight(**fields: Any) -> float:
        of = container(weight=0.3)
        request = SearchRequest(query="pkce", top_k=5, **fields)
        return make_plan(request, {"c": of}, ["c"], 1.0).containers[0].fusion.weights["summaries"]

    assert weight() == 0.3
    assert weight(fusion=Fusion(weights={"summaries": 2.0})) == 2.0
