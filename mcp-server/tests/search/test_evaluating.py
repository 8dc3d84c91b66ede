"""What an evaluation takes for the time of a query: its shortest, looked for again before a gate refuses it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typing_extensions import override

from latent_core.domain.evaluation import (
    MOST_ROUNDS,
    EvalRequest,
    JudgedQuery,
    KeptRun,
    Means,
    Setup,
)
from latent_core.domain.golden import GoldenQuery
from latent_core.domain.job import JobKind
from latent_core.domain.manifest import Manifest, SearchMode
from latent_core.evaluation.questions import Answered, Questions, judged
from latent_core.observability import Metrics
from latent_core.queue.runner import Ended
from latent_core.settings import Settings
from latent_gateway import evaluating
from latent_gateway.evaluating import _Evaluation

SETUP = Setup(mode=SearchMode.HYBRID)


class Scripted(_Evaluation):
    """Its searches take the times that it is given."""

    def __init__(self, rounds: Sequence[Sequence[float]]) -> None:
        self._times: Iterator[float] = (time for one in rounds for time in one)
        queries = [JudgedQuery(id=f"q{n}", query="q", relevant={"a": 1.0}) for n in range(2)]
        self._request = EvalRequest(judged=queries, rounds=2)
        self._container = cast(Any, SimpleNamespace(manifest=Manifest(id="art", name="Art")))
        self._questions = Questions.of(self._request, self._container.manifest.eval.thresholds)
        self._ctx = cast(Any, self)
        self._done, self._total = 0, 4

    async def progress(self, done: int, total: int, note: str) -> None:
        """Nobody looks."""

    @override
    async def _ask(
        self,
        setup: Setup,
        query: GoldenQuery | JudgedQuery,
    ) -> tuple[Answered, float, bool]:
        return judged(query, []), next(self._times), False


def last(p95: float) -> KeptRun:
    figures = dict.fromkeys(
        ("ndcg_at_10", "recall_at_20", "recall_at_100", "mrr", "zero_hit_rate"), 0.0
    )
    return KeptRun(
        setup="s", dataset="d", means=Means(**figures, p50_ms=p95, p95_ms=p95), ndcg_by_query={}
    )


@pytest.mark.parametrize(
    ("rounds", "before", "times", "asked"),
    [
        ([[90, 20], [30, 80]], 30.0, [30, 20], 2),
        ([[90, 20], [70, 80], [60, 60], [33, 25]], 30.0, [33, 20], 4),
        ([[90, 20]] * MOST_ROUNDS, 30.0, [90, 20], MOST_ROUNDS),
        ([[90, 20], [70, 80]], None, [70, 20], 2),
    ],
)
async def test_a_rise_of_the_latency_is_looked_at_again_before_it_counts(
    rounds: Sequence[Sequence[float]], before: float | None, times: list[float], asked: int
) -> None:
    evaluation = Scripted(rounds)
    found = await evaluation._answers(SETUP, 2)
    await evaluation._again_while_slower(SETUP, found, None if before is None else last(before))
    assert found.latencies_ms == times
    assert len(found.answers) == 2
    assert evaluation._done == evaluation._total == 2 * asked


class Told:
    """A runner that claims nothing, and hands out whom it would tell of its jobs."""

    def __init__(self, *_: object, told: Any, **__: object) -> None:
        self.told = told

    async def run(self, **_: object) -> None:
        """Nothing waits."""

    def stop(self) -> None:
        """It has ended."""


async def test_an_evaluation_that_ended_is_counted_as_any_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evaluating, "Runner", Told)
    metrics = Metrics()
    stack = cast(Any, SimpleNamespace(db=None, metrics=metrics))
    async with evaluating.evaluating(Settings.model_construct(), stack) as runner:
        job = cast(Any, SimpleNamespace(kind=JobKind.EVAL))
        cast(Any, runner).told(Ended(job, "failed", None, 1.5))
    labels = {"kind": "eval", "outcome": "failed"}
    assert metrics.registry.get_sample_value("latent_jobs_total", labels) == 1
