"""Evaluation: judged queries against the container's search; the report is the job's result (ADR 0019)."""

from __future__ import annotations

from latent_core.db import containers, eval_runs
from latent_core.db.connection import Connection, Database
from latent_core.db.containers import Container
from latent_core.domain.errors import NotFound
from latent_core.eval.run import Evaluation, questions_of
from latent_core.queue.context import JobContext
from latent_core.queue.finish import finish
from latent_core.search.readable import Readable
from latent_core.wire.evaluation import EvalRequest, KeptRun
from latent_workers.deps import Deps


async def evaluate(ctx: JobContext, deps: Deps) -> None:
    """Search, judge, compare, and store the run unless the request only compares.

    The gateway has checked that the requester owns the container.
    """
    request = EvalRequest.model_validate(ctx.job.payload)
    async with deps.stack.db.transaction() as conn:
        container = await containers.get(conn, ctx.job.container_id)
    if container is None:
        raise NotFound(f"container '{ctx.job.container_id}' no longer exists")
    result = await Evaluation(
        deps.search_service(),
        Readable(container),
        request,
        await _last(deps.stack.db, container, request),
        ctx.progress,
        process=deps.stack.process,
    ).run()

    async def write(conn: Connection) -> None:
        await finish(
            conn, ctx.job, warnings=result.notes, result=result.report.model_dump(mode="json")
        )
        for measured in result.runs:
            await eval_runs.save(
                conn, container.id, measured, job_id=ctx.job.id, principal=ctx.job.principal
            )

    await ctx.transact(write)


async def _last(db: Database, container: Container, request: EvalRequest) -> dict[str, KeptRun]:
    """The saved runs of the same queries by setup; none if the run is saved whatever its result."""
    if request.save:
        return {}
    dataset = questions_of(container, request).dataset
    async with db.transaction() as conn:
        runs = await eval_runs.last(conn, container.id, dataset)
    return {run.setup: run for run in runs}
