"""The shared read of a query's keywords."""

from __future__ import annotations

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
HITS = KeywordHits(np.array([7]), np.array([1.0]), 1, 1, (), 1)


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


class Stores:
    """A stand-in for the stores of a search."""

    keywords = LateIndex()


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
