"""Evaluation runs: all of a setup, one with the verdict of every query, and the difference of two."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Query, Response

from latent_core.wire.evaluation import QueryVerdict
from latent_gateway.api import evaluation
from latent_gateway.console.frame.console_session import SignedIn
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.frame.view import page
from latent_gateway.console.quality.charts import BAR_WIDTH, change_bar, curves
from latent_gateway.console.quality.golden import RUNS, base_of, container_of
from latent_gateway.context import Shared

router = pages()

VERDICTS: Final = 500
"""Shown of a run, the worst first."""
CHANGES: Final = 500

BASE: Final = "/console/containers/{container_id}/quality/runs"
RunNumber = Annotated[int, Query(ge=1, lt=2**63)]


@router.get(BASE)
async def runs_page(
    container_id: str,
    shared: Shared,
    session: SignedIn,
    setup: Annotated[str, Query(max_length=1024)] = "",
) -> Response:
    """The newest runs, and their curves if they are of one setup."""
    container, rights = await container_of(shared, session, container_id)
    runs = await evaluation.runs_of(
        shared, session.principal, container.id, limit=RUNS, setup=setup or None
    )
    return page(
        "quality/runs.html",
        session,
        container=container,
        rights=rights,
        tab="quality",
        base=base_of(container.id),
        setup=setup,
        runs=runs,
        curves=curves(runs) if setup and runs else (),
    )


@router.get(f"{BASE}/{{run_id}}")
async def run_page(container_id: str, run_id: int, shared: Shared, session: SignedIn) -> Response:
    """One run, the worst queries first, and a choice of runs to compare it with."""
    container, rights = await container_of(shared, session, container_id)
    (found,) = await evaluation.detailed_runs(shared, session.principal, container.id, [run_id])
    others = await evaluation.runs_of(
        shared, session.principal, container.id, limit=RUNS, setup=found.run.setup
    )
    verdicts = sorted(found.verdicts or (), key=_worst_first)
    return page(
        "quality/run.html",
        session,
        container=container,
        rights=rights,
        tab="quality",
        base=base_of(container.id),
        run=found.run,
        verdicts=verdicts[:VERDICTS],
        total=len(verdicts),
        detailed=found.verdicts is not None,
        others=[run for run in others if run.id != run_id],
        before=next((run.id for run in others if run.id < run_id), None),
    )


def _worst_first(verdict: QueryVerdict) -> tuple[bool, float, str]:
    return not verdict.failures, verdict.ndcg_at_10, verdict.id


@router.get("/console/containers/{container_id}/quality/compare")
async def compare_page(
    container_id: str, before: RunNumber, after: RunNumber, shared: Shared, session: SignedIn
) -> Response:
    """What changed from one run to another, the largest change first."""
    container, rights = await container_of(shared, session, container_id)
    found = await evaluation.compared(shared, session.principal, container.id, before, after)
    return page(
        "quality/compare.html",
        session,
        container=container,
        rights=rights,
        tab="quality",
        base=base_of(container.id),
        found=found,
        changes=[(one, change_bar(one.change)) for one in found.changes[:CHANGES]],
        bar_width=BAR_WIDTH,
    )
