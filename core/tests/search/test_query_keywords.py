"""The shared read of a query's keywords."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
import pytest

from latent_core.bm25.port import KeywordAnswers, KeywordHits
from latent_core.domain.errors import TimedOut
from latent_core.search.keywords import QueryKeywords
from latent_core.search.query_words import QueryWords
from latent_core.search.readable import SearchStores

pytestmark = pytest.mark.asyncio

MISSPELT = QueryWords({"c": ["english"]}, {"c": ["lantren"]}, "lantren", {}, {"lantren": "lantren"})
HITS = KeywordHits(np.array([7]), np.array([1.0]), np.array([1.0]), 1, 1, (), 1)


class Answers:
    dfs: Mapping[str, int] = {"lantern": 1}

    async def best(self, container_id: str, k: int, allowed: object = None) -> KeywordHits:
        return HITS


class LateIndex:
    """Has no time for the read with the corrected word."""

    async def read(self, queries: Mapping[str, Sequence[str]], **_: object) -> KeywordAnswers:
        if queries["c"] == ["lantern"]:
            raise TimedOut("late")
        return cast(KeywordAnswers, Answers())


class CountedIndex:
    """Counts its reads."""

    def __init__(self) -> None:
        self.reads: list[list[str]] = []

    async def read(self, queries: Mapping[str, Sequence[str]], **_: object) -> KeywordAnswers:
        self.reads.append(list(queries))
        return cast(KeywordAnswers, Answers())


class Stores:
    """A stand-in for the stores of a search."""

    keywords: LateIndex | CountedIndex = LateIndex()


async def test_a_correction_that_was_not_searched_is_not_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def corrected(_: object, words: QueryWords, *__: object) -> QueryWords:
        return QueryWords(words.languages, {"c": ["lantern"]}, words.embedded)

    monkeypatch.setattr("latent_core.search.keywords.corrected", corrected)
    keywords = QueryKeywords(cast(SearchStores, Stores()), MISSPELT, ["c"])
    hits = await keywords.best("c", 10, 1.0)
    assert hits.chunk_nos.tolist() == [7], "what was read before stays"
    assert keywords.words is MISSPELT
    await keywords.close()


async def test_only_a_container_whose_documents_changed_is_read_again() -> None:
    index = CountedIndex()
    stores = Stores()
    stores.keywords = index
    words = QueryWords({"a": ["english"], "b": ["english"]}, {"a": ["lamp"], "b": ["lamp"]}, "lamp")
    keywords = QueryKeywords(cast(SearchStores, stores), words, ["a", "b"])

    await keywords.best("a", 10, 1.0)
    await keywords.best("b", 10, 1.0)
    assert index.reads == [["a", "b"]], "both by one read"

    keywords.renew("a")
    await keywords.best("b", 20, 1.0)
    assert len(index.reads) == 1, "another container's documents did not change"
    await keywords.best("a", 10, 1.0)
    assert index.reads == [["a", "b"]] * 2, "the weights are those of both"
    await keywords.close()


async def test_a_read_that_began_before_the_change_is_not_used_although_it_still_runs() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    class SlowFirst(CountedIndex):
        async def read(self, queries: Mapping[str, Sequence[str]], **_: object) -> KeywordAnswers:
            answers = await super().read(queries)
            if len(self.reads) == 1:
                begun.set()
                await go_on.wait()
            return answers

    stores = Stores()
    stores.keywords = index = SlowFirst()
    words = QueryWords({"a": ["english"]}, {"a": ["lamp"]}, "lamp")
    keywords = QueryKeywords(cast(SearchStores, stores), words, ["a"])
    first = asyncio.create_task(keywords.best("a", 10, 30.0))
    await begun.wait()
    keywords.renew("a")
    await keywords.best("a", 10, 30.0)
    assert len(index.reads) == 2
    go_on.set()
    await first
    await keywords.close()
