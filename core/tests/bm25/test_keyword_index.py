"""The keyword index against BM25 as its formula reads: same chunks, same order, same scores."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from latent_core.bm25 import postings
from latent_core.bm25.analyser import analyse, query_terms
from latent_core.bm25.bm25 import PostgresKeywordIndex
from latent_core.bm25.compaction import CompactionRules, compact
from latent_core.bm25.packing import ChunkTerms
from latent_core.bm25.port import KeywordHits
from latent_core.bm25.summary_terms import of_summary
from latent_core.db.connection import Database
from latent_core.domain.errors import TimedOut, TooLarge
from tests.support.oracles.naive_bm25 import NaiveBM25

TIMEOUT = 20.0
CONTAINER = "tested"
# Everything happens at once in small containers: several ranges, purges, merges.
EAGER = CompactionRules(
    range_rows=7, range_postings=40, merge_ratio=2, dead_chunks=1, dead_share=10_000
)
NUMBERS = itertools.count()


async def go_on() -> None:
    """The checkpoint of a run that nobody cancels."""


def chunk(chunk_no: int, text: str) -> ChunkTerms:
    analysed = analyse(text, "simple")
    return ChunkTerms(chunk_no, analysed.length, analysed.tfs)


async def publish(
    database: Database, chunks: Sequence[ChunkTerms], container: str = CONTAINER
) -> None:
    async with database.transaction() as conn:
        await postings.write(conn, container, chunks)


async def mark_dead(
    database: Database, chunks: Sequence[ChunkTerms], container: str = CONTAINER
) -> None:
    async with database.transaction() as conn:
        await postings.mark_dead(conn, container, [(c.chunk_no, c.length) for c in chunks])


async def search(
    database: Database, terms: Sequence[str], k: int = 10, allowed: Sequence[int] | None = None
) -> KeywordHits:
    return await PostgresKeywordIndex(database).search(
        CONTAINER,
        terms,
        k,
        timeout_seconds=TIMEOUT,
        allowed=None if allowed is None else np.array(allowed, np.uint32),
    )


def assert_same(hits: KeywordHits, expected: list[tuple[int, float]]) -> None:
    assert hits.chunk_nos.tolist() == [chunk_no for chunk_no, _ in expected]
    assert hits.scores.tolist() == pytest.approx([score for _, score in expected], abs=1e-6)


WORDS = [f"w{n}" for n in range(12)]
# Common and rare words, many repeats: ties, big df, several occurrences.
TEXT = st.lists(st.sampled_from(WORDS + WORDS[:3] * 4), max_size=14)
QUERY = st.lists(st.sampled_from([*WORDS, "absent"]), max_size=6)
STEP = st.one_of(
    st.tuples(st.just("publish"), st.lists(TEXT, min_size=1, max_size=6)),
    st.tuples(st.just("replace"), st.lists(TEXT, min_size=1, max_size=3)),
    st.tuples(st.just("bury"), st.integers(1, 4)),
    st.tuples(st.just("compact"), st.just(0)),
)


@dataclass
class Scene:
    """A container and what it should be."""

    database: Database
    random: random.Random
    container: str = field(default_factory=lambda: f"scene-{next(NUMBERS)}")
    oracle: NaiveBM25 = field(default_factory=NaiveBM25)
    next_chunk_no: int = 0

    def number(self, texts: Sequence[Sequence[str]]) -> list[ChunkTerms]:
        """Ords as generations take them: growing, with gaps where attempts failed."""
        chunks = []
        for text in texts:
            self.next_chunk_no += self.random.choice([1, 1, 1, 5, 3_000_000])
            chunks.append(chunk(self.next_chunk_no, " ".join(text)))
        return chunks

    def some_live(self, count: int) -> list[ChunkTerms]:
        live = sorted(self.oracle.chunks)
        return [self.oracle.chunks[o] for o in self.random.sample(live, min(count, len(live)))]

    async def do(self, action: str, argument: list[list[str]] | int) -> None:
        if action == "compact":
            await compact(self.database, self.container, go_on, EAGER)
            return
        new = self.number(argument) if isinstance(argument, list) else []
        old = self.some_live(argument if isinstance(argument, int) else len(argument))
        old = [] if action == "publish" else old
        async with self.database.transaction() as conn:
            await postings.write(conn, self.container, new)
            await postings.mark_dead(conn, self.container, [(c.chunk_no, c.length) for c in old])
        self.oracle.publish(new)
        self.oracle.mark_dead(c.chunk_no for c in old)

    async def check(self, terms: list[str], k: int) -> None:
        live = sorted(self.oracle.chunks)
        allowed = [*self.random.sample(live, len(live) // 2), self.next_chunk_no + 7]
        index = PostgresKeywordIndex(self.database)
        for filtered in (None, allowed):
            hits = await index.search(
                self.container,
                terms,
                k,
                timeout_seconds=TIMEOUT,
                allowed=None if filtered is None else np.array(filtered, np.uint32),
            )
            assert_same(hits, self.oracle.search(terms, k, filtered))
            assert hits.matched == len(self.oracle.search(terms, 10**6, filtered))
            assert hits.live_chunks == len(live)


# Not shrunk: each example is dozens of transactions, and shrinking would outlast the test's deadline.
@settings(
    max_examples=40,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    steps=st.lists(STEP, min_size=1, max_size=12),
    queries=st.lists(st.tuples(QUERY, st.integers(0, 8)), min_size=1, max_size=4),
    seed=st.integers(0, 2**16),
)
async def test_after_any_history_the_answers_are_those_of_the_formula(
    database: Database,
    steps: list[tuple[str, list[list[str]] | int]],
    queries: list[tuple[list[str], int]],
    seed: int,
) -> None:
    scene = Scene(database, random.Random(seed))
    for action, argument in steps:
        await scene.do(action, argument)
        await scene.check(*queries[0])
    await scene.do("compact", 0)
    for terms, k in queries:
        await scene.check(terms, k)


async def test_a_larger_container_is_scored_alike_with_and_without_a_dense_array(
    database: Database,
) -> None:
    chance = random.Random(3)
    chunks = [
        chunk(n if n < 1500 else n * 1000, " ".join(chance.choices(WORDS, k=chance.randint(1, 30))))
        for n in range(2000)
    ]
    await publish(database, chunks)
    await mark_dead(database, chunks[::7])
    oracle = NaiveBM25(c for n, c in enumerate(chunks) if n % 7)
    for terms in (["w1"], ["w1", "w2", "w2"], WORDS):
        assert_same(await search(database, terms, 50), oracle.search(terms, 50))
    allowed = list(range(0, 1_900_000, 3))
    assert_same(await search(database, WORDS, 40, allowed), oracle.search(WORDS, 40, set(allowed)))


async def test_equal_scores_are_ordered_by_chunk_no_also_at_the_cut(database: Database) -> None:
    await publish(database, [chunk(n, "same words") for n in (9, 3, 7, 1, 5)])
    assert (await search(database, ["same"], 3)).chunk_nos.tolist() == [1, 3, 5]


async def test_a_repeated_query_term_counts_twice(database: Database) -> None:
    await publish(database, [chunk(0, "red"), chunk(1, "blue blue"), chunk(2, "green")])
    once = await search(database, ["red", "blue"])
    twice = await search(database, ["red", "red", "blue"])
    assert twice.scores[0] == pytest.approx(2 * once.scores[once.chunk_nos.tolist().index(0)])
    assert [use.count for use in twice.terms] == [2, 1]


async def test_no_terms_no_container_and_no_match_are_no_hits(database: Database) -> None:
    assert len((await search(database, ["anything"])).chunk_nos) == 0
    await publish(database, [chunk(0, "something")])
    for terms in ([], ["anything"]):
        hits = await search(database, terms)
        assert (len(hits.chunk_nos), hits.matched, hits.live_chunks) == (0, 0, 1)


async def test_chunks_without_terms_count_in_the_average(database: Database) -> None:
    chunks = [chunk(0, "one two three"), chunk(1, ""), chunk(2, "one")]
    await publish(database, chunks)
    assert_same(await search(database, ["one"]), NaiveBM25(chunks).search(["one"], 10))


async def test_diagnostics_tell_the_weight_of_every_term(database: Database) -> None:
    chunks = [chunk(0, "common rare"), chunk(1, "common"), chunk(2, "common dead")]
    await publish(database, chunks)
    await mark_dead(database, chunks[2:])
    hits = await search(database, ["common", "rare", "dead", "absent"])
    assert {use.term: use.df for use in hits.terms} == {
        "common": 2,
        "rare": 1,
        "dead": 0,
        "absent": 0,
    }
    assert hits.terms[0].idf < hits.terms[1].idf
    assert hits.rows_read == 3


async def test_containers_do_not_see_each_other(database: Database) -> None:
    await publish(database, [chunk(0, "shared word")])
    await publish(database, [chunk(1, "shared word"), chunk(2, "shared")], "other")
    hits = await search(database, ["shared"])
    assert (hits.chunk_nos.tolist(), hits.live_chunks) == ([0], 1)


async def test_a_stop_word_of_one_language_is_not_rare_because_another_indexes_it(
    database: Database,
) -> None:
    spanish = ["la casa de la ciudad", "el perro de la calle", "los libros de la biblioteca"] * 5
    english = ["notes on the plan de campagne"]
    chunks = []
    for n, (text, language) in enumerate(
        [(t, "spanish") for t in spanish] + [(t, "english") for t in english]
    ):
        analysed = analyse(text, language)
        chunks.append(ChunkTerms(n, analysed.length, analysed.tfs, language))
    await publish(database, chunks[:8])
    await publish(database, chunks[8:])
    hits = await search(database, query_terms("libros de la casa", ["english", "spanish"]), 20)
    assert hits.chunk_nos[-1] == len(spanish)
    weights = {use.term: use.idf for use in hits.terms}
    assert weights["de"] < weights["cas"]


async def test_an_unpublished_transaction_is_not_seen(database: Database) -> None:
    async with database.transaction() as conn:
        await postings.write(conn, CONTAINER, [chunk(0, "draft")])
        assert len((await search(database, ["draft"])).chunk_nos) == 0
    assert (await search(database, ["draft"])).chunk_nos.tolist() == [0]


async def test_past_the_deadline_a_search_is_timed_out_and_the_pool_stays_usable(
    database: Database,
) -> None:
    await publish(database, [chunk(0, "word")])
    async with database.transaction() as conn:
        await conn.execute("LOCK TABLE postings IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(TimedOut, match="tested took longer than"):
            await PostgresKeywordIndex(database).search(
                CONTAINER, ["word"], 5, timeout_seconds=0.05
            )
    assert (await search(database, ["word"])).chunk_nos.tolist() == [0]


async def test_a_chunk_no_that_cannot_be_packed_is_refused(database: Database) -> None:
    with pytest.raises(TooLarge, match="export it and import it"):
        await publish(database, [chunk(2**32, "word")])


async def test_a_publication_larger_than_a_row_takes_several(database: Database) -> None:
    many = [ChunkTerms(n, 1, {"word": 1}) for n in range(70_000)]
    await publish(database, many)
    hits = await search(database, ["word"], 3)
    assert (hits.matched, hits.rows_read, hits.chunk_nos.tolist()) == (70_000, 2, [0, 1, 2])


@dataclass
class History:
    """Every state the container had or may have by now, in order."""

    states: list[NaiveBM25]
    begun: int = 0
    """Of the last state whose transaction has begun."""
    done: int = 0
    """Of the last state that is surely committed."""
    compactions: int = 0
    searches: int = 0

    def eventful(self) -> bool:
        return self.begun >= 25 and self.compactions >= 3 and self.searches >= 15


async def write_on(database: Database, history: History) -> None:
    chance = random.Random(11)
    while not history.eventful():
        state = history.states[-1].copy()
        first = 5 * history.begun
        new = [chunk(first + n, " ".join(chance.choices(WORDS, k=6))) for n in range(5)]
        old = [state.chunks[o] for o in chance.sample(sorted(state.chunks), len(state.chunks) // 3)]
        state.mark_dead(c.chunk_no for c in old)
        state.publish(new)
        history.states.append(state)
        history.begun += 1
        async with database.transaction() as conn:
            await postings.write(conn, CONTAINER, new)
            await postings.mark_dead(conn, CONTAINER, [(c.chunk_no, c.length) for c in old])
        history.done = history.begun


async def compact_on(database: Database, history: History, writer: asyncio.Task[None]) -> None:
    while not writer.done():
        await compact(database, CONTAINER, go_on, EAGER)
        history.compactions += 1


async def search_on(database: Database, history: History, writer: asyncio.Task[None]) -> None:
    terms = ["w0", "w3", "w7"]
    while not writer.done():
        first = history.done
        hits = await search(database, terms, 8)
        answer = list(zip(hits.chunk_nos.tolist(), hits.scores.tolist(), strict=True))
        possible = [state.search(terms, 8) for state in history.states[first : history.begun + 1]]
        assert answer in possible
        history.searches += 1


async def test_under_writes_and_compactions_every_answer_is_that_of_one_committed_moment(
    database: Database,
) -> None:
    history = History([NaiveBM25()])
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        writer = group.create_task(write_on(database, history))
        group.create_task(compact_on(database, history, writer))
        for _ in range(2):
            group.create_task(search_on(database, history, writer))
    hits = await search(database, WORDS, 100)
    assert_same(hits, history.states[-1].search(WORDS, 100))


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    texts=st.lists(st.tuples(st.integers(0, 2), TEXT), min_size=1, max_size=12),
    terms=QUERY,
)
async def test_several_containers_are_compared_as_if_their_chunks_were_one_container_s_and_each_keeps_its_order(
    database: Database, texts: list[tuple[int, list[str]]], terms: list[str]
) -> None:
    scene = next(NUMBERS)
    names = [f"union-{scene}-{n}" for n in range(3)]
    chunks = [(names[at], chunk(no, " ".join(text))) for no, (at, text) in enumerate(texts)]
    for name in names:
        await publish(database, [c for its, c in chunks if its == name], name)
    answers = await PostgresKeywordIndex(database).read(
        dict.fromkeys(names, terms), timeout_seconds=TIMEOUT
    )
    together = NaiveBM25(c for _, c in chunks).search(terms, 100)
    for name in names:
        its = [c for where, c in chunks if where == name]
        hits = await answers.best(name, 100)
        assert_same(hits, NaiveBM25(its).search(terms, 100))
        numbers = {c.chunk_no for c in its}
        common = dict(zip(hits.chunk_nos.tolist(), hits.common.tolist(), strict=True))
        assert common == pytest.approx({no: s for no, s in together if no in numbers})


async def test_each_container_is_searched_for_its_own_terms(database: Database) -> None:
    await publish(database, [chunk(1, "oak elm")], "own-terms-a")
    await publish(database, [chunk(1, "oak elm")], "own-terms-b")
    answers = await PostgresKeywordIndex(database).read(
        {"own-terms-a": ["oak"], "own-terms-b": ["elm", "absent"]}, timeout_seconds=TIMEOUT
    )
    first, second = await answers.best("own-terms-a", 5), await answers.best("own-terms-b", 5)
    assert [use.term for use in first.terms] == ["oak"]
    assert [(use.term, use.df) for use in second.terms] == [("elm", 1), ("absent", 0)]


async def test_summaries_have_statistics_of_their_own_and_change_none_of_the_originals(
    database: Database,
) -> None:
    def summary(chunk_no: int, text: str) -> ChunkTerms:
        analysed = of_summary(analyse(text, "simple"))
        return ChunkTerms(chunk_no, analysed.length, analysed.tfs)

    texts = {1: "oak oak elm", 2: "elm ash", 3: "ash ash ash ash oak"}
    written = {11: "oak elm elm beech", 12: "oak"}
    originals = [chunk(no, text) for no, text in texts.items()]
    await publish(database, originals, "with-summaries")
    await publish(database, [summary(no, text) for no, text in written.items()], "with-summaries")
    dead = summary(13, "oak oak")
    await publish(database, [dead], "with-summaries")
    await mark_dead(database, [dead], "with-summaries")

    index, query = PostgresKeywordIndex(database), ["oak", "elm", "=oak"]
    for _ in range(2):  # merged or not
        answers = await index.read({"with-summaries": query}, timeout_seconds=TIMEOUT)
        of_summaries = await index.read(
            {"with-summaries": query, "without": query}, timeout_seconds=TIMEOUT, of_summaries=True
        )
        assert_same(await answers.best("with-summaries", 9), NaiveBM25(originals).search(query, 9))
        own = NaiveBM25(chunk(no, text) for no, text in written.items())
        hits = await of_summaries.best("with-summaries", 9)
        assert_same(hits, own.search(["oak", "elm"], 9))
        assert [use.term for use in hits.words] == ["~oak", "~elm"], "names are not of summaries"
        assert sorted(of_summaries.summaries("with-summaries").tolist()) == [11, 12]
        assert not len(of_summaries.summaries("without"))
        await compact(database, "with-summaries", go_on, EAGER)
