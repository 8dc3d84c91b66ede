"""What an evaluation takes for the time of a query, and with which runs it compares it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from latent_core.domain.manifest.model import Manifest, SearchMode
from latent_core.eval import run as evaluation_run
from latent_core.eval.run import Evaluation, TimedSearch
from latent_core.models.rerank.resolve import Rerankers
from latent_core.wire.evaluation import (
    MAX_ROUNDS,
    EvalRequest,
    JudgedQuery,
    KeptRun,
    Means,
    Setup,
)
from latent_core.wire.search import SearchResponse

SETUP = Setup(mode=SearchMode.HYBRID)


async def no_progress(done: int, total: int, note: str) -> None:
    """Nobody looks."""


def evaluation_of(last: KeptRun | None, **words: Any) -> Evaluation:
    queries = [JudgedQuery(id=f"q{n}", query="q", relevant={"a": 1.0}) for n in range(2)]
    container = cast(Any, SimpleNamespace(id="art", manifest=Manifest(id="art", name="Art")))
    runs = {} if last is None else {SETUP.name: last}
    request = EvalRequest(judged=queries, rounds=2, modes=[SETUP.mode], **words)
    service = cast(Any, SimpleNamespace(stores=SimpleNamespace(rerankers=Rerankers())))
    return Evaluation(service, container, request, runs, no_progress, process="worker")


def scripted(monkeypatch: pytest.MonkeyPatch, times: Iterator[float]) -> None:
    """Searches take the times of ``times`` and find nothing."""

    async def timed(*_: object) -> TimedSearch:
        return TimedSearch(SearchResponse(), next(times))

    monkeypatch.setattr(evaluation_run, "timed_search", timed)


def last(p95: float, process: str = "worker") -> KeptRun:
    figures = dict.fromkeys(
        ("ndcg_at_10", "recall_at_20", "recall_at_100", "mrr", "zero_hit_rate"), 0.0
    )
    return KeptRun(
        setup=SETUP.name,
        dataset="d",
        means=Means(**figures, p50_ms=p95, p95_ms=p95),
        process=process,
    )


@pytest.mark.parametrize(
    ("rounds", "before", "times", "queries"),
    [
        ([[90, 20], [30, 80]], 30.0, [30, 20], 2),
        ([[90, 20], [70, 80], [60, 60], [33, 25]], 30.0, [33, 20], 4),
        ([[90, 20]] * MAX_ROUNDS, 30.0, [90, 20], MAX_ROUNDS),
        ([[90, 20], [70, 80]], None, [70, 20], 2),
    ],
)
async def test_a_rise_of_the_latency_is_looked_at_again_before_it_counts(
    monkeypatch: pytest.MonkeyPatch,
    rounds: Sequence[Sequence[float]],
    before: float | None,
    times: list[float],
    queries: int,
) -> None:
    scripted(monkeypatch, (time for one in rounds for time in one))
    evaluation = evaluation_of(None if before is None else last(before))
    evaluation._total = 4
    found = await evaluation._answers(SETUP, 2)
    await evaluation._repeat_while_slower(SETUP, found)
    assert found.latencies_ms == times
    assert len(found.answers) == 2
    assert evaluation._done == evaluation._total == 2 * queries


async def test_a_p95_of_another_kind_of_process_is_not_compared_and_a_note_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for process, failures, notes in (("worker", 1, 0), ("up", 0, 1), ("", 0, 1)):
        scripted(monkeypatch, iter([90.0] * 100))
        result = await evaluation_of(last(30.0, process), compare=True).run()
        (setup,) = result.report.setups
        assert len([gate for gate in setup.gates if "p95" in gate]) == failures
        assert len(result.notes) == notes
        assert all("another kind of process" in note.message for note in result.notes)


async def test_a_kept_run_names_the_kind_of_process_that_measured_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scripted(monkeypatch, iter([90.0] * 100))
    result = await evaluation_of(None, save=True).run()
    (measured,) = result.runs
    kept = measured.run
    assert kept.process == "worker"
    assert "process" not in kept.model_dump()
    assert "process" not in KeptRun.model_json_schema(mode="serialization")["properties"]
