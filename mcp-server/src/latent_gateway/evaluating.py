"""Evaluation jobs: the gateway claims them itself, since it is the one that searches (ADR 0010).

The same queue as all other work: leases, progress, cancelling and a new attempt after a crash come with it.
One at a time, so that latencies are those of a search and not of an evaluation beside another.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final

from latent_core.domain.errors import Invalid, NotFound
from latent_core.domain.evaluation import (
    MOST_ROUNDS,
    EvalReport,
    EvalRequest,
    JudgedQuery,
    KeptRun,
    Setup,
    SetupReport,
    Suggestion,
)
from latent_core.domain.golden import GoldenQuery
from latent_core.domain.job import JobKind
from latent_core.domain.manifest import SearchMode
from latent_core.domain.query import MAX_TOP_K, SearchRequest
from latent_core.evaluation.questions import Answered, Questions, judged
from latent_core.evaluation.reporting import (
    candidates,
    is_baseline,
    is_slower,
    report,
    suggestion,
)
from latent_core.queue.context import JobContext
from latent_core.queue.counted import counting
from latent_core.queue.finish import finish
from latent_core.queue.runner import Runner
from latent_core.registry import containers, eval_runs
from latent_core.registry.connection import Connection
from latent_core.registry.containers import Container
from latent_core.search.embed import QueryCache
from latent_core.search.plan import require_offered
from latent_core.search.readable import Readable
from latent_core.search.service import SearchService
from latent_core.search.turns import Turns
from latent_core.settings import Settings
from latent_core.stack import Stack
from latent_gateway.links import BlobLinks

logger = logging.getLogger(__name__)

STOP_SECONDS: Final = 1.0
"""Then it is released, and begins anew at the next start."""
ASKED: Final = "queries asked"


@asynccontextmanager
async def evaluating(settings: Settings, stack: Stack) -> AsyncIterator[Runner]:
    """Claims evaluation jobs until the block ends."""

    async def handle(ctx: JobContext) -> None:
        await evaluate(ctx, settings, stack)

    async def waiting() -> bool:
        async with stack.db.transaction() as conn:
            return await eval_runs.waiting(conn)

    runner = Runner(
        stack.db,
        {JobKind.EVAL: handle},
        concurrency=1,
        lease_seconds=settings.lease_seconds,
        poll_seconds=settings.poll_seconds,
        worker_id=f"{socket.gethostname()}-{os.getpid()}-gateway",
        told=counting(stack.metrics),
        waiting=waiting,
    )
    task = asyncio.create_task(runner.run(stop_seconds=STOP_SECONDS), name="evaluating")
    try:
        yield runner
    finally:
        runner.stop()
        await task


@dataclass(slots=True)
class Asked:
    """What one setup answered."""

    answers: list[Answered] = field(default_factory=list)
    latencies_ms: list[float] = field(default_factory=list)
    """The shortest of each query."""
    partial: int = 0


async def evaluate(ctx: JobContext, settings: Settings, stack: Stack) -> None:
    """Ask, judge, compare, and keep the run if that was asked for."""
    request = EvalRequest.model_validate(ctx.job.payload)
    async with stack.db.transaction() as conn:
        container = await containers.get(conn, ctx.job.container_id)
    if container is None:
        raise NotFound(f"container '{ctx.job.container_id}' does not exist any more")
    made = await _Evaluation(ctx, settings, stack, container, request).run()

    async def write(conn: Connection) -> None:
        await finish(conn, ctx.job, result=made.report.model_dump(mode="json"))
        for run, passed in made.kept:
            await eval_runs.save(
                conn, container.id, run, passed=passed, principal=ctx.job.principal
            )

    await ctx.transact(write)


@dataclass(frozen=True, slots=True)
class Evaluated:
    report: EvalReport
    kept: Sequence[tuple[KeptRun, bool]]


class _Evaluation:
    """One evaluation of one container. Who asked for it was shown to own the container."""

    def __init__(
        self,
        ctx: JobContext,
        settings: Settings,
        stack: Stack,
        container: Container,
        request: EvalRequest,
    ) -> None:
        self._ctx = ctx
        self._db = stack.db
        self._container = container
        self._request = request
        self._questions = questions_of(container, request)
        self._done = 0
        self._total = 0
        self._service = SearchService(
            stack.search_stores(QueryCache()),
            BlobLinks(stack.signer, ""),
            settings.search_timeout_ms / 1000,
            stack.metrics,
            Turns(),  # one query after the other: what is measured does not wait for other searches
        )

    async def run(self) -> Evaluated:
        setups = setups_of(self._container, self._request)
        more = self._to_try()
        queries = len(self._questions.queries)
        self._total = queries * (self._request.rounds * len(setups) + len(more))
        await self._ask(setups[0], self._questions.queries[0])  # loads what is loaded at first use
        asked = [(setup, await self._answers(setup, self._request.rounds)) for setup in setups]
        last = await self._last()
        for setup, found in asked:
            await self._again_while_slower(setup, found, last.get(setup.name))
        reports = [self._report(setup, found, last) for setup, found in asked]
        passed = all(one.passed for one in reports)
        keep = is_baseline(self._request, reports)
        runs = [
            (self._run(setup, found, one), one.passed)
            for (setup, found), one in zip(asked, reports, strict=True)
        ]
        return Evaluated(
            EvalReport(
                container_id=self._container.id,
                dataset=self._questions.dataset,
                passed=passed,
                setups=reports,
                suggestion=await self._suggestion(more),
                kept=keep,
            ),
            runs if keep else (),
        )

    async def _answers(self, setup: Setup, rounds: int) -> Asked:
        found = Asked()
        for _ in range(rounds):
            await self._round(setup, found)
        return found

    async def _round(self, setup: Setup, found: Asked) -> None:
        """All queries once; what they answer counts the first time, their time when it is the shortest."""
        first = not found.answers
        for place, query in enumerate(self._questions.queries):
            answered, milliseconds, partial = await self._ask(setup, query)
            if first:
                found.answers.append(answered)
                found.latencies_ms.append(milliseconds)
                found.partial += partial
            else:
                found.latencies_ms[place] = min(found.latencies_ms[place], milliseconds)
            self._done += 1
            await self._ctx.progress(self._done, self._total, ASKED)

    async def _again_while_slower(self, setup: Setup, found: Asked, last: KeptRun | None) -> None:
        """A search that became slower stays so; a machine that is busy for a moment does not."""
        if last is None:
            return
        metrics = self._container.manifest.eval.metrics
        for _ in range(self._request.rounds, MOST_ROUNDS):
            if not is_slower(found.latencies_ms, last, metrics):
                return
            self._total += len(self._questions.queries)
            await self._round(setup, found)

    async def _ask(
        self, setup: Setup, query: GoldenQuery | JudgedQuery
    ) -> tuple[Answered, float, bool]:
        """Chunks, not documents: of a long document that is found again and again each place counts for recall."""
        request = SearchRequest(
            containers=[self._container.id],
            query=query.query,
            mode=setup.mode,
            fusion=setup.fusion,
            top_k=MAX_TOP_K,
            dedup=False,
            diagnostics=False,
        )
        begun = perf_counter()
        answer = await self._service.search(
            request, {self._container.id: Readable(self._container)}
        )
        milliseconds = (perf_counter() - begun) * 1000
        return judged(query, answer.hits), milliseconds, answer.partial

    async def _last(self) -> dict[str, KeptRun]:
        if self._request.save:
            return {}
        async with self._db.transaction() as conn:
            found = await eval_runs.last(conn, self._container.id, self._questions.dataset)
        return {run.setup: run for run in found}

    def _report(self, setup: Setup, found: Asked, last: dict[str, KeptRun]) -> SetupReport:
        return report(
            setup,
            found.answers,
            found.latencies_ms,
            self._questions.thresholds,
            last.get(setup.name),
            golden=self._request.golden is not None,
            partial=found.partial,
            metrics=self._container.manifest.eval.metrics,
        )

    def _run(self, setup: Setup, found: Asked, made: SetupReport) -> KeptRun:
        return KeptRun(
            setup=setup.name,
            dataset=self._questions.dataset,
            means=made.means,
            ndcg_by_query={a.id: a.figures.ndcg for a in found.answers},
        )

    def _to_try(self) -> list[Setup]:
        """Hybrid search as the manifest has it now, and what it is compared with."""
        if not self._request.suggest:
            return []
        current = Setup(mode=SearchMode.HYBRID, fusion=self._container.manifest.retrieval.fusion)
        return [current, *(one for one in candidates() if one.name != current.name)]

    async def _suggestion(self, setups: Sequence[Setup]) -> Suggestion | None:
        if not setups:
            return None
        tried = [(setup, (await self._answers(setup, 1)).answers) for setup in setups]
        return suggestion(tried[0][1], tried)


def questions_of(container: Container, request: EvalRequest) -> Questions:
    """``Invalid`` without a query."""
    questions = Questions.of(request, container.manifest.eval.thresholds)
    if not questions.queries:
        raise Invalid(
            f"no query to ask: write manifests/{container.id}/eval.json, or send golden or judged queries"
        )
    return questions


def setups_of(container: Container, request: EvalRequest) -> list[Setup]:
    """Every mode with every fusion, each once; ``Forbidden`` when one of them is not to be had."""
    retrieval = container.manifest.retrieval
    modes = request.modes or [retrieval.mode_default]
    for mode in modes:
        require_offered(mode)
    fusions = request.fusions or [retrieval.fusion]
    setups = [Setup(mode=mode, fusion=fusion) for mode in modes for fusion in fusions]
    return list({setup.name: setup for setup in setups}.values())
