"""The rerank stage: rules that must hold whatever rerankers answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import SecretStr
from typing_extensions import override

from latent_core.domain.errors import (
    Invalid,
    IssueCode,
    LatentError,
    RateLimited,
    TimedOut,
    Unavailable,
)
from latent_core.domain.manifest.model import Rerank, SearchMode
from latent_core.models.rerank.api import ApiReranker, RerankEndpoint, RerankRetryPolicy
from latent_core.models.rerank.resolve import Reranker, Rerankers
from latent_core.search.circuit_breaker import CircuitBreakers
from latent_core.search.rerank import (
    MAX_SECONDS,
    RerankedCandidate,
    RerankInput,
    RerankResult,
    head_size,
    rerank,
)
from tests.support.servers.rerank_server import RerankFault, RerankServer

QUERY = "rye bread recipe"
FUSED = [RerankInput(key, score) for key, score in (("a", 0.9), ("b", 0.7), ("c", 0.5), ("d", 0.3))]
TEXTS = {"a": "soup", "b": "bread", "c": "a recipe for rye bread"}


@dataclass
class IssueSummary:
    """A reranker that answers what it is told to."""

    scores: Sequence[float | None] = ()
    error: LatentError | None = None
    name: str = "the told one"
    deadline: float = 0.0
    texts: Sequence[str] = ()

    async def rerank(self, query: str, texts: Sequence[str], deadline: float) -> list[float | None]:
        self.texts, self.deadline = texts, deadline
        if self.error is not None:
            raise self.error
        return list(self.scores)

    async def close(self) -> None:
        pass


class DeafReranker(IssueSummary):
    """Does not heed its deadline."""

    @override
    async def rerank(self, query: str, texts: Sequence[str], deadline: float) -> list[float | None]:
        await asyncio.Event().wait()
        return []


def in_seconds(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


async def reordered(
    reranker: Reranker, texts: dict[str, str] | None = None, seconds: float = 30.0
) -> RerankResult[str]:
    given = TEXTS if texts is None else texts
    return await rerank(
        lambda: reranker, QUERY, FUSED, given, in_seconds(seconds), CircuitBreakers()
    )


def keys(found: RerankResult[str]) -> str:
    return "".join(placed.key for placed in found.order)


async def test_the_head_is_ordered_by_the_reranker_and_the_rest_stays_below_it() -> None:
    found = await reordered(IssueSummary([0.1, 0.4, 0.8]))
    assert found.order[:3] == [
        RerankedCandidate("c", 0.8, 0.8),
        RerankedCandidate("b", 0.4, 0.4),
        RerankedCandidate("a", 0.1, 0.1),
    ]
    assert (found.order[3].key, found.order[3].reranked) == ("d", None)
    assert 0.0 < found.order[3].score < 0.1
    assert (found.reranked, found.issue) == (3, None)


async def test_what_a_late_reranker_scored_is_ordered_and_the_others_follow_as_fused() -> None:
    found = await reordered(IssueSummary([0.1, 0.4, None]))
    assert keys(found) == "bacd"
    assert (found.reranked, found.issue) == (2, None)
    assert found.hint is not None
    assert "ordered 2 of 3 hits" in found.hint.message
    scores = [placed.score for placed in found.order]
    assert scores == sorted(scores, reverse=True)


async def test_without_a_reranker_the_fused_order_is_the_answer_with_one_hint() -> None:
    for missing in (Rerankers(), Rerankers(default="none")):
        found = await rerank(missing.named, QUERY, FUSED, TEXTS, in_seconds(30), CircuitBreakers())
        assert (keys(found), found.reranked, found.issue) == ("abcd", 0, None)
        assert found.hint is not None
        assert "LLC_RERANK" in found.hint.message


async def test_only_texts_of_the_head_with_words_are_sent_in_fused_order() -> None:
    scripted = IssueSummary([0.1, 0.2])
    found = await reordered(
        scripted, {"a": "soup", "b": " \n", "c": "rye", "of another search": "x"}
    )
    assert scripted.texts == ["soup", "rye"]
    assert keys(found) == "cabd"


async def test_without_texts_the_reranker_is_not_called() -> None:
    found = await reordered(IssueSummary(error=Unavailable("asked")), {})
    assert (keys(found), found.issue, found.reranked) == ("abcd", None, 0)


async def test_equal_scores_leave_the_fused_order() -> None:
    assert keys(await reordered(IssueSummary([0.0, 0.0, 0.0]))) == "abcd"


async def test_log_odds_become_probabilities() -> None:
    found = await reordered(IssueSummary([0.0, -800.0, 3.0]))
    assert keys(found) == "cabd"
    assert [placed.score for placed in found.order[:2]] == pytest.approx([0.952574, 0.5])
    assert [placed.reranked for placed in found.order] == [3.0, 0.0, -800.0, None]


anything = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=200)
@given(
    st.lists(st.floats(0, 1), max_size=30).map(lambda scores: sorted(scores, reverse=True)),
    st.one_of(
        st.lists(anything, min_size=30, max_size=30),
        st.lists(st.floats(0, 1), min_size=30, max_size=30),
        st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=30, max_size=30),
    ),
    st.sets(st.integers(0, 29)),
)
def test_every_candidate_stays_and_sorting_by_score_keeps_the_order(
    fused: list[float], given_scores: list[float], head: set[int]
) -> None:
    candidates = [RerankInput(key, score) for key, score in enumerate(fused)]
    judged = [key for key in range(len(fused)) if key in head]
    scripted = IssueSummary([given_scores[key] for key in judged])
    texts = dict.fromkeys(judged, "words")

    async def run() -> RerankResult[int]:
        return await rerank(
            lambda: scripted, QUERY, candidates, texts, in_seconds(30.0), CircuitBreakers()
        )

    found = asyncio.run(run())
    order = [placed.key for placed in found.order]
    expected = sorted(judged, key=lambda key: (-given_scores[key], key))
    assert order == expected + [key for key in range(len(fused)) if key not in expected]
    scores = [placed.score for placed in found.order]
    assert all(0.0 <= score <= 1.0 for score in scores)
    assert scores == sorted(scores, reverse=True)
    top = scores[: len(judged)]
    assert len(set(top)) == len(top)


class TestTrouble:
    @pytest.mark.parametrize(
        ("error", "code"),
        [
            (Unavailable("the reranker at r failed (500)"), IssueCode.UNAVAILABLE),
            (RateLimited("the reranker at r accepts no more"), IssueCode.UNAVAILABLE),
            (Invalid("the reranker at r does not accept the key"), IssueCode.UNAVAILABLE),
            (TimedOut("the reranker at r was late"), IssueCode.TIMEOUT),
        ],
    )
    async def test_the_fused_order_stands_and_the_issue_says_why(
        self, error: LatentError, code: IssueCode
    ) -> None:
        found = await reordered(IssueSummary(error=error))
        assert found.order == [RerankedCandidate(c.key, c.score, None) for c in FUSED]
        assert found.issue is not None
        assert (found.issue.code, found.reranked) == (code, 0)
        assert error.message in found.issue.message
        assert found.issue.details["cause"] == error.code.value

    async def test_an_unavailable_reranker_is_reported(self) -> None:
        found = await rerank(
            lambda: Rerankers().named("api"),
            QUERY,
            FUSED,
            TEXTS,
            in_seconds(30.0),
            CircuitBreakers(),
        )
        assert keys(found) == "abcd"
        assert found.issue is not None
        assert "LLC_RERANK_API_URL" in found.issue.message

    async def test_one_that_does_not_heed_the_deadline_is_left_behind(self) -> None:
        found = await reordered(DeafReranker(), seconds=0.05)
        assert keys(found) == "abcd"
        assert found.issue is not None
        assert (found.issue.code, "told one" in found.issue.message) == (IssueCode.TIMEOUT, True)

    @pytest.mark.parametrize(("given", "latest"), [(1.0, 1.0), (600.0, MAX_SECONDS)])
    async def test_the_deadline_is_that_of_the_request_capped_at_five_seconds(
        self, given: float, latest: float
    ) -> None:
        scripted = IssueSummary([1.0, 1.0, 1.0])
        before = in_seconds(0.0)
        await reordered(scripted, seconds=given)
        assert before + latest <= scripted.deadline <= in_seconds(latest)

    @pytest.mark.parametrize("kind", [None, *RerankFault])
    async def test_whatever_a_server_does_there_is_an_order_and_no_key_in_it(
        self, kind: RerankFault | None
    ) -> None:
        async with RerankServer(key="sk-secret") as server:
            if kind is not None:
                server.misbehave(kind, times=99)
            reranker = ApiReranker(
                RerankEndpoint(server.url(), SecretStr("sk-secret")),
                retry_policy=RerankRetryPolicy(attempts=1),
            )
            late = kind is RerankFault.SILENT
            found = await reordered(reranker, seconds=0.05 if late else 30.0)
            await reranker.close()
        assert keys(found) == ("cbad" if kind is None else "abcd")
        assert "sk-" not in str(found)
        if kind is not None:
            assert found.issue is not None
            assert "127.0.0.1" in found.issue.message


class TestHeadSize:
    def test_the_mode_or_the_manifest_asks_for_it(self) -> None:
        on, off = Rerank(enabled=True, top_k_in=30), Rerank(top_k_in=20)
        assert head_size(SearchMode.HYBRID, off, 10) == 0
        assert head_size(SearchMode.RERANK, off, None) == 20
        assert head_size(SearchMode.LEXICAL, on, None) == 30

    def test_a_request_that_names_a_number_goes_before_the_manifest(self) -> None:
        assert head_size(SearchMode.RERANK, Rerank(top_k_in=20), 7) == 7
