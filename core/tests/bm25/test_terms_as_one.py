"""Several terms that count as one word, against BM25 as its formula reads over texts that have that one word."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from latent_core.bm25 import postings
from latent_core.bm25.analyser import analyse
from latent_core.bm25.bm25 import PostgresKeywordIndex
from latent_core.bm25.completion import OpenWord, completions
from latent_core.bm25.packing import ChunkTerms
from latent_core.db.connection import Database
from tests.support.oracles.naive_bm25 import NaiveBM25

NUMBERS = itertools.count()
WORD = st.text("ab", min_size=1, max_size=3)
TEXTS = st.lists(st.lists(WORD, max_size=10), min_size=1, max_size=8)


def chunk(chunk_no: int, text: Sequence[str], beginning: str) -> ChunkTerms:
    """With the beginning as one more term, which the index does not have."""
    analysed = analyse(" ".join(text), "simple")
    begun = sum(count for term, count in analysed.tfs.items() if term.startswith(beginning))
    tfs = analysed.tfs | ({f"{beginning}*": begun} if begun else {})
    return ChunkTerms(chunk_no, analysed.length, tfs)


@settings(
    max_examples=40,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    texts=TEXTS, later=TEXTS, typed=WORD, rest=st.lists(WORD, max_size=2), dead=st.integers(0, 7)
)
async def test_a_beginning_scores_as_one_word_that_stands_for_all_that_begin_with_it(
    database: Database,
    texts: list[list[str]],
    later: list[list[str]],
    typed: str,
    rest: list[str],
    dead: int,
) -> None:
    container = f"as-one-{next(NUMBERS)}"
    chunks = [chunk(n, text, typed) for n, text in enumerate([*texts, *later])]
    stored = [ChunkTerms(c.chunk_no, c.length, {t: n for t, n in c.tfs.items() if t != f"{typed}*"}) for c in chunks]  # fmt: skip
    oracle = NaiveBM25(chunks)
    async with database.transaction() as conn:
        await postings.write(conn, container, stored[: len(texts)])
        await postings.write(conn, container, stored[len(texts) :])
        if dead < len(texts):
            await postings.mark_dead(conn, container, [(dead, stored[dead].length)])
            oracle.mark_dead([dead])
    word = OpenWord.of(typed)
    assert word is not None
    async with database.reading() as conn:
        found = await completions(conn, [container], word, ["simple"])
    terms = [*rest, f"{typed}*"]

    index = PostgresKeywordIndex(database)
    answers = await index.read({container: terms}, timeout_seconds=20, as_one=found.terms)
    hits = await answers.best(container, 20)

    expected = oracle.search(terms, 20)
    assert hits.chunk_nos.tolist() == [chunk_no for chunk_no, _ in expected]
    assert hits.scores.tolist() == pytest.approx([score for _, score in expected], abs=1e-6)
    live = oracle.chunks.values()
    assert answers.dfs[f"{typed}*"] == sum(f"{typed}*" in one.tfs for one in live)
