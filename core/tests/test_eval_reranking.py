"""What an evaluation says of a reranker: figures of both sides, partial answers, bounds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from latent_core.db.containers import Container, Space
from latent_core.domain.errors import Issue, IssueCode
from latent_core.domain.ids import SpaceId
from latent_core.domain.manifest.model import Manifest, Rerank, Retrieval, SearchMode
from latent_core.eval import run
from latent_core.eval.metrics import of_documents, of_strings
from latent_core.eval.reranking import compare_reranking, missing_reranker
from latent_core.eval.run import Evaluation
from latent_core.eval.timed_search import TimedSearch
from latent_core.models.rerank.resolve import Rerankers
from latent_core.search.readable import Readable
from latent_core.wire.containers import ContainerState
from latent_core.wire.evaluation import MAX_RERANKED, EvalRequest, JudgedQuery, Setup
from latent_core.wire.search import MAX_TOP_K, SearchResponse
from tests.support.hits import hit

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def query(number: int) -> JudgedQuery:
    return JudgedQuery(id=f"q{number}", query=f"q{number}", relevant={"file:///good": 1.0})


class Searches:
    """A search that finds the good document second, and first when reranked, which takes 100 ms more."""

    def __init__(self, late: Sequence[str] = ()) -> None:
        self.late = late
        self.reranked: list[str] = []
        self.modes: set[SearchMode] = set()

    async def __call__(self, container: Readable, setup: Setup, text: str) -> TimedSearch:
        how = container.manifest.retrieval.rerank
        names = ["bad", "good"]
        issues = []
        self.modes.add(setup.mode)
        if how.enabled:
            assert how.top_k_out == MAX_TOP_K
            self.reranked.append(text)
            names.reverse()
            if text in self.late:
                late = {"stage": "rerank"}
                issues = [Issue(code=IssueCode.POLICY, message="late", details=late)]
        return TimedSearch(
            SearchResponse(hits=[hit(name) for name in names], issues=issues),
            120.0 if how.enabled else 20.0,
        )


async def nothing() -> None:
    pass


def container_of(retrieval: Retrieval) -> Readable:
    space = Space(SpaceId(1), "art", "local", "1", 3)
    manifest = Manifest(id="art", name="Art", retrieval=retrieval)
    return Readable(Container("art", manifest, "e", ContainerState.ACTIVE, space, (), NOW, NOW))


async def test_figures_of_both_sides_are_reported_with_the_difference_in_one_line() -> None:
    searches = Searches()
    queries = [query(n) for n in range(3)]
    found = await compare_reranking(searches, container_of(Retrieval()), queries, nothing)
    assert found.without is not None
    assert found.reranked is not None
    assert found.gain is not None
    assert (found.without.hit_at_1, found.reranked.hit_at_1) == (0.0, 1.0)
    assert (found.without.recall_at_20, found.reranked.recall_at_20) == (1.0, 1.0)
    assert (found.without.p95_ms, found.reranked.p50_ms) == (20.0, 120.0)
    assert found.gain.value == pytest.approx(1 - 0.6309, abs=1e-4)
    assert found.summary == "reranking: nDCG@10 .63 → 1.00, +100 ms at p95"
    assert (found.queries, found.partial, found.cause) == (3, 0, "")


async def test_answers_whose_head_was_not_fully_reranked_are_counted_with_the_cause() -> None:
    queries = [query(n) for n in range(4)]
    searches = Searches(late=["q1", "q3"])
    found = await compare_reranking(searches, container_of(Retrieval()), queries, nothing)
    assert (found.partial, found.cause) == (2, "late")


@pytest.mark.parametrize("mode", [SearchMode.RERANK, SearchMode.HYBRID])
async def test_a_container_that_reranks_by_itself_is_compared_with_its_own_search_without(
    mode: SearchMode,
) -> None:
    searches = Searches()
    retrieval = Retrieval(mode_default=mode, rerank=Rerank(enabled=True))
    found = await compare_reranking(searches, container_of(retrieval), [query(0)], nothing)
    assert found.without is not None
    assert found.without.hit_at_1 == 0.0
    assert searches.modes == {SearchMode.HYBRID}


async def test_the_first_hundred_queries_are_reranked_and_progress_ends_at_its_total(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searches = Searches()
    folder = SimpleNamespace(name="there")
    rerankers = Rerankers(local=cast(Any, folder))
    service = cast(Any, SimpleNamespace(stores=SimpleNamespace(rerankers=rerankers)))
    steps: list[tuple[int, int]] = []

    async def search(_: object, container: Readable, setup: Setup, text: str) -> TimedSearch:
        return await searches(container, setup, text)

    async def on_progress(done: int, total: int, _: str) -> None:
        steps.append((done, total))

    monkeypatch.setattr(run, "timed_search", search)
    queries = [query(n) for n in range(MAX_RERANKED + 20)]
    request = EvalRequest(judged=queries, rounds=1)
    container = container_of(Retrieval())
    result = await Evaluation(service, container, request, {}, on_progress, process="up").run()
    assert result.report.reranking is not None
    assert result.report.reranking.queries == MAX_RERANKED
    assert searches.reranked == ["q0", *(f"q{n}" for n in range(MAX_RERANKED))]
    assert steps[-1] == (len(queries) + MAX_RERANKED,) * 2


def test_without_a_reranker_the_cause_names_the_way_to_get_one() -> None:
    container = container_of(Retrieval())
    assert "latent models add" in (missing_reranker(Rerankers(), container) or "")
    off = missing_reranker(Rerankers(default="none"), container)
    assert "LLC_RERANK_PROVIDER is none" in (off or "")
    api = container_of(Retrieval(rerank=Rerank(provider="api")))
    assert "LLC_RERANK_API_URL" in (missing_reranker(Rerankers(), api) or "")


def test_hit_at_1_counts_the_first_document_and_of_strings_those_in_the_first_hit() -> None:
    assert of_documents({"file:///a": 1.0}, [hit("a"), hit("b")]).hit_1 == 1.0
    assert of_documents({"file:///a": 1.0}, [hit("b"), hit("a")]).hit_1 == 0.0
    assert of_strings(["lamp", "horn"], [hit("a", "a lamp"), hit("b", "a horn")]).hit_1 == 0.5
    assert of_strings(["lamp"], []).hit_1 == 0.0
