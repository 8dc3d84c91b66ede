"""One evaluation of one container: search for every query, judge, compare with the last kept run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from latent_core.db.containers import Container
from latent_core.domain.errors import Invalid, Issue, IssueCode
from latent_core.domain.golden import GoldenQuery
from latent_core.domain.manifest.model import SearchMode
from latent_core.eval.datasets import QueryResult, QuerySet, judged
from latent_core.eval.gates import LATENCY
from latent_core.eval.reporting import (
    candidates,
    is_baseline,
    latency_fails,
    report,
    suggestion,
)
from latent_core.eval.reranking import compare_reranking, missing_reranker, reranked_queries
from latent_core.eval.timed_search import TimedSearch, timed_search
from latent_core.search.plan import require_offered
from latent_core.search.readable import Readable
from latent_core.search.service import SearchService
from latent_core.wire.evaluation import (
    MAX_ROUNDS,
    EvalReport,
    EvalRequest,
    JudgedQuery,
    KeptRun,
    QueryVerdict,
    RerankReport,
    Setup,
    SetupReport,
    Suggestion,
)

PROGRESS_NOTE: Final = "queries done"

OnProgress = Callable[[int, int, str], Awaitable[None]]
"""Called with queries done, queries in total, and a note."""


@dataclass(slots=True)
class SetupRun:
    """The answers of one setup to all queries."""

    answers: list[QueryResult] = field(default_factory=list)
    latencies_ms: list[float] = field(default_factory=list)
    """The shortest time of each query."""
    partial: int = 0


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A run to store."""

    run: KeptRun
    verdicts: Sequence[QueryVerdict]
    """Of every query, in their order."""
    gates: Sequence[str]
    partial: int
    golden: bool
    baseline: bool
    """Whether later runs are compared with it."""


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    report: EvalReport
    runs: Sequence[MeasuredRun]
    """Runs to store; none if the request only compares."""
    notes: Sequence[Issue]


class Evaluation:
    """One evaluation of one container, in a process of kind ``process``."""

    def __init__(
        self,
        service: SearchService,
        container: Readable,
        request: EvalRequest,
        last: Mapping[str, KeptRun],
        on_progress: OnProgress,
        *,
        process: str,
    ) -> None:
        """``last``: by setup, the kept runs of the same queries to compare with."""
        self._service = service
        self._container = container
        self._request = request
        self._questions = questions_of(container, request)
        self._last = last
        self._on_progress = on_progress
        self._process = process
        self._done = 0
        self._total = 0

    async def run(self) -> EvaluationResult:
        setups = setups_of(self._container, self._request)
        more = self._to_try()
        queries = len(self._questions.queries)
        rerankers = self._service.stores.rerankers
        missing = missing_reranker(rerankers, self._container)
        pairs = [] if missing is not None else reranked_queries(self._questions.queries)
        self._total = queries * (self._request.rounds * len(setups) + len(more)) + len(pairs)
        first = self._questions.queries[0]
        # The first search loads models and caches; it is not measured.
        await timed_search(self._service, self._container, setups[0], first.query)
        runs = [(setup, await self._answers(setup, self._request.rounds)) for setup in setups]
        for setup, run in runs:
            await self._repeat_while_slower(setup, run)
        reports = [self._report(setup, run) for setup, run in runs]
        keep = is_baseline(self._request, reports)
        measured = [
            self._measured(run, one, baseline=keep)
            for (_, run), one in zip(runs, reports, strict=True)
        ]
        return EvaluationResult(
            EvalReport(
                container_id=self._container.id,
                dataset=self._questions.dataset,
                passed=all(one.passed for one in reports),
                setups=reports,
                suggestion=await self._suggestion(more),
                reranking=await self._reranking(pairs, missing),
                kept=keep,
            ),
            () if self._request.compare else measured,
            self._notes(setups),
        )

    async def _answers(self, setup: Setup, rounds: int) -> SetupRun:
        run = SetupRun()
        for _ in range(rounds):
            await self._round(setup, run)
        return run

    async def _round(self, setup: Setup, run: SetupRun) -> None:
        """Run all queries once. Only the first answer of each is judged; the shortest time counts."""
        first = not run.answers
        for place, query in enumerate(self._questions.queries):
            timed = await timed_search(self._service, self._container, setup, query.query)
            if first:
                run.answers.append(judged(query, timed.response.hits))
                run.latencies_ms.append(timed.milliseconds)
                run.partial += timed.response.partial
            else:
                run.latencies_ms[place] = min(run.latencies_ms[place], timed.milliseconds)
            await self._query_done()

    async def _query_done(self) -> None:
        self._done += 1
        await self._on_progress(self._done, self._total, PROGRESS_NOTE)

    async def _reranking(
        self, queries: Sequence[GoldenQuery | JudgedQuery], missing: str | None
    ) -> RerankReport:
        if missing is not None:
            return RerankReport(missing=missing, summary=f"reranking: not measured: {missing}")
        return await compare_reranking(self._search, self._container, queries, self._query_done)

    async def _search(self, container: Readable, setup: Setup, query: str) -> TimedSearch:
        return await timed_search(self._service, container, setup, query)

    async def _repeat_while_slower(self, setup: Setup, run: SetupRun) -> None:
        """Repeat while the latency gate fails: a slower search stays slow, a briefly busy machine does not."""
        last = self._last.get(setup.name)
        if last is None:
            return
        for _ in range(self._request.rounds, MAX_ROUNDS):
            if not latency_fails(run.latencies_ms, last, self._metrics(last)):
                return
            self._total += len(self._questions.queries)
            await self._round(setup, run)

    def _metrics(self, last: KeptRun | None) -> list[str]:
        """Metrics to compare with ``last``, without latency if another kind of process measured it."""
        metrics: list[str] = list(self._container.manifest.eval.metrics)
        if last is not None and last.process != self._process:
            metrics = [metric for metric in metrics if metric != LATENCY]
        return metrics

    def _notes(self, setups: Sequence[Setup]) -> list[Issue]:
        """One for each setup whose p95 is not compared although the manifest asks for it."""
        if LATENCY not in self._container.manifest.eval.metrics:
            return []
        runs = [self._last[setup.name] for setup in setups if setup.name in self._last]
        return [
            Issue(
                code=IssueCode.POLICY,
                message=f"p95 of '{run.setup}' is not compared with the run of {run.created_at}: another kind of process "
                f"measured that run ({run.process or 'unknown'}, this one: {self._process})",
                details={"setup": run.setup},
            )
            for run in runs
            if run.process != self._process
        ]

    def _report(self, setup: Setup, run: SetupRun) -> SetupReport:
        last = self._last.get(setup.name)
        return report(
            setup,
            run.answers,
            run.latencies_ms,
            self._questions.thresholds,
            last,
            golden=self._request.golden is not None,
            partial=run.partial,
            metrics=self._metrics(last),
        )

    def _measured(self, run: SetupRun, setup_report: SetupReport, *, baseline: bool) -> MeasuredRun:
        kept = KeptRun(
            setup=setup_report.name,
            dataset=self._questions.dataset,
            means=setup_report.means,
            ndcg_by_query={a.id: a.figures.ndcg for a in run.answers},
            process=self._process,
        )
        return MeasuredRun(
            kept,
            [answer.verdict for answer in run.answers],
            setup_report.gates,
            setup_report.partial,
            golden=self._request.golden is not None,
            baseline=baseline,
        )

    def _to_try(self) -> list[Setup]:
        """The manifest's current hybrid search, then the alternatives."""
        if not self._request.suggest:
            return []
        current = Setup(mode=SearchMode.HYBRID, fusion=self._container.manifest.retrieval.fusion)
        return [current, *(one for one in candidates() if one.name != current.name)]

    async def _suggestion(self, setups: Sequence[Setup]) -> Suggestion | None:
        if not setups:
            return None
        tried = [(setup, (await self._answers(setup, 1)).answers) for setup in setups]
        return suggestion(tried[0][1], tried)


def questions_of(container: Container, request: EvalRequest) -> QuerySet:
    """``Invalid`` without a query."""
    questions = QuerySet.of(request, container.manifest.eval.thresholds)
    if not questions.queries:
        raise Invalid(
            f"container '{container.id}' has no golden queries: add some (latent golden add {container.id} …, or "
            "Quality in the console), or send golden or judged queries"
        )
    return questions


def setups_of(container: Container, request: EvalRequest) -> list[Setup]:
    """Every mode with every fusion, each once; ``Forbidden`` when a mode is not offered."""
    retrieval = container.manifest.retrieval
    modes = request.modes or [retrieval.mode_default]
    for mode in modes:
        require_offered(mode)
    fusions = request.fusions or [retrieval.fusion]
    setups = [Setup(mode=mode, fusion=fusion) for mode in modes for fusion in fusions]
    return list({setup.name: setup for setup in setups}.values())
