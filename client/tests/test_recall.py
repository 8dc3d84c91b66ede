"""Hits of a search as documents or pages: each once, read from as many pages of hits as are needed."""

from __future__ import annotations

from typing import Literal

import pytest
from typing_extensions import override

from latent_client import AsyncClient, hybrid_search
from latent_core.domain.manifest.model import FusionMethod
from latent_core.wire.search import Hit, SearchRequest, SearchResponse
from tests.support.hits import hit


def at(name: str, page: int, score: float) -> Hit:
    one = hit(name)
    uri = f"http://gateway/{name}/{page}"
    return one.model_copy(
        update={
            "score": score,
            "page_uri": uri,
            "page_uris": [uri, f"http://gateway/{name}/{page + 1}"],
            "provenance": one.provenance.model_copy(update={"page": page}),
        }
    )


class PreparedAnswers(AsyncClient):
    """A client whose searches return prepared pages of hits."""

    def __init__(self, pages: list[list[Hit]]) -> None:
        super().__init__("http://gateway", "token")
        self.pages = pages
        self.requests: list[SearchRequest] = []

    @override
    async def search(self, request: SearchRequest) -> SearchResponse:
        page = len(self.requests)
        self.requests.append(request)
        following = str(page + 1) if page + 1 < len(self.pages) else None
        return SearchResponse(hits=self.pages[page], next_cursor=following)


PAGES = [
    [at("a", 1, 0.9), at("a", 2, 0.8), at("a", 1, 0.7)],
    [at("a", 3, 0.6), at("b", 1, 0.65)],
    [at("c", 1, 0.1)],
]


@pytest.mark.parametrize(
    ("per", "k", "expected", "requests"),
    [
        ("document", 1, [("a", 1)], 1),
        ("document", 2, [("a", 1), ("b", 1)], 2),
        ("document", 12, [("a", 1), ("b", 1), ("c", 1)], 3),
        ("page", 2, [("a", 1), ("a", 2)], 1),
        ("page", 4, [("a", 1), ("a", 2), ("b", 1), ("a", 3)], 2),
    ],
)
async def test_each_document_or_page_is_one_result_by_its_best_hit(
    per: Literal["document", "page"], k: int, expected: list[tuple[str, int]], requests: int
) -> None:
    client = PreparedAnswers(PAGES)
    found = await hybrid_search(client, "lamp", k, per=per)
    assert [(one.source_path, one.page) for one in found] == expected
    assert len(client.requests) == requests
    assert [request.cursor for request in client.requests] == [None, "1", "2"][:requests]


async def test_the_request_weighs_meaning_and_keywords_and_names_every_condition() -> None:
    client = PreparedAnswers(PAGES)
    await hybrid_search(client, "lamp", 3, ["wick"], ["l.mp"], "*.pdf", containers=["c"])
    request = client.requests[0]
    assert request.fusion is not None
    assert request.fusion.method is FusionMethod.WEIGHTED
    assert request.fusion.weights == {"vector": 0.6, "bm25": 0.4, "exact": 0.0}
    assert (request.must_terms, request.regexes, request.path_like) == (["wick"], ["l.mp"], "*.pdf")
    assert request.containers == ["c"]
    client = PreparedAnswers(PAGES)
    await hybrid_search(client, "lamp")
    assert client.requests[0].containers is None


async def test_a_page_has_its_own_image_and_a_document_all_of_the_best_passage() -> None:
    (page,) = await hybrid_search(PreparedAnswers(PAGES), "lamp", 1, per="page")
    assert page.page_uris == ["http://gateway/a/1"]
    (document,) = await hybrid_search(PreparedAnswers(PAGES), "lamp", 1)
    assert document.page_uris == ["http://gateway/a/1", "http://gateway/a/2"]
