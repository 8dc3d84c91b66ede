"""``POST /v1/containers/{id}/eval``: run judged queries as a job; ``GET``: the last saved runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Response

from latent_core.db import audit, eval_runs, golden
from latent_core.domain import cursors
from latent_core.domain.errors import Conflict, NotFound
from latent_core.domain.job import JobKind, NewJob
from latent_core.eval.difference import difference
from latent_core.eval.run import questions_of, setups_of
from latent_core.queue.enqueue import enqueue
from latent_core.wire.evaluation import (
    EvalHistory,
    EvalRequest,
    EvalRun,
    EvalRunAnswer,
    EvalRuns,
    RunDifference,
)
from latent_core.wire.jobs import JobAccepted
from latent_gateway.auth import access
from latent_gateway.auth.principal import Principal
from latent_gateway.context import Caller, Gateway, RequestId, Shared
from latent_gateway.envelope import json_answer

router = APIRouter(tags=["evaluation"])

ATTEMPTS: Final = 3
LAST: Final = 2**63 - 1
RunId = Annotated[int, Path(ge=1, lt=2**63)]


@router.post("/v1/containers/{container_id}/eval", response_model=JobAccepted, status_code=202)
async def evaluate(
    container_id: str, body: EvalRequest, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Measure the retrieval of a container with golden or judged queries. The report is the job's ``result``."""
    answer = await evaluated(shared, caller, container_id, body, request_id)
    return json_answer(answer, request_id, status=202)


async def evaluated(
    shared: Gateway, caller: Principal, container_id: str, body: EvalRequest, request_id: str
) -> JobAccepted:
    """The job, once it is stored; ``Invalid`` without a query."""
    async with shared.stack.db.transaction() as conn:
        container = await access.measurable(conn, caller, container_id)
        if body.golden is None and not body.judged:
            body = body.model_copy(update={"golden": await golden.read(conn, container.id)})
    questions_of(container, body)
    setups_of(container, body)  # an invalid request fails here, and not in the middle of the job
    async with shared.stack.db.transaction() as conn:
        await shared.quotas.check_queue(conn, caller)
        job_id = await enqueue(
            conn,
            NewJob(
                kind=JobKind.EVAL,
                container_id=container.id,
                doc_key=f"eval:{container.id}",
                payload=body.model_dump(mode="json", by_alias=True),
                max_attempts=ATTEMPTS,
                principal=caller.name,
            ),
        )
        await audit.note(
            conn,
            principal=caller.name,
            token_id=caller.token_id,
            action="container.eval",
            container_id=container.id,
            object_=None,
            request_id=request_id,
        )
    shared.stack.wake()
    return JobAccepted(job_id=job_id)


@router.get("/v1/containers/{container_id}/eval", response_model=EvalRuns)
async def last_runs(
    container_id: str,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    limit: Annotated[int, Query(ge=1, le=cursors.MAX_PAGE)] = 100,
    cursor: Annotated[str | None, Query(max_length=128)] = None,
) -> Response:
    """The last saved run of each query set and setup, newest first. The next run is compared with it."""
    before = cursors.decode_int(cursor, LAST)
    async with shared.stack.db.transaction() as conn:
        container = await access.readable_one(conn, caller, container_id)
        found = await eval_runs.page(conn, container.id, before=before, limit=limit + 1)
    more = cursors.encode(found[limit - 1][0]) if len(found) > limit else None
    answer = EvalRuns(runs=[run for _, run in found[:limit]], next_cursor=more)
    return json_answer(answer, request_id)


@router.get("/v1/containers/{container_id}/eval/runs", response_model=EvalHistory)
async def history(
    container_id: str,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    setup: Annotated[str | None, Query(max_length=1024)] = None,
    limit: Annotated[int, Query(ge=1, le=cursors.MAX_PAGE)] = 100,
    cursor: Annotated[str | None, Query(max_length=128)] = None,
) -> Response:
    """All stored runs, also those that failed a gate, newest first; of one setup if it is given."""
    before = cursors.decode_int(cursor, LAST)
    runs = await runs_of(shared, caller, container_id, before=before, limit=limit + 1, setup=setup)
    more = cursors.encode(runs[limit - 1].id) if len(runs) > limit else None
    return json_answer(EvalHistory(runs=runs[:limit], next_cursor=more), request_id)


async def runs_of(
    shared: Gateway,
    caller: Principal,
    container_id: str,
    *,
    limit: int,
    before: int = LAST,
    setup: str | None = None,
) -> list[EvalRun]:
    """Stored runs before the run ``before``, newest first, for all who may read the container."""
    async with shared.stack.db.reading() as conn:
        container = await access.readable_one(conn, caller, container_id)
        return await eval_runs.history(conn, container.id, before=before, limit=limit, setup=setup)


@router.get("/v1/containers/{container_id}/eval/runs/{run_id}", response_model=EvalRunAnswer)
async def run(
    container_id: str, run_id: RunId, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """One run with the verdict of every query."""
    (found,) = await detailed_runs(shared, caller, container_id, [run_id])
    return json_answer(EvalRunAnswer(run=found.run, verdicts=found.verdicts), request_id)


@router.get(
    "/v1/containers/{container_id}/eval/runs/{run_id}/difference", response_model=RunDifference
)
async def run_difference(
    container_id: str,
    run_id: RunId,
    since: Annotated[int, Query(ge=1, lt=2**63)],
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
) -> Response:
    """Compare a run with an earlier one (``since``), query by query."""
    answer = await compared(shared, caller, container_id, since, run_id)
    return json_answer(answer, request_id)


async def compared(
    shared: Gateway, caller: Principal, container_id: str, before: int, after: int
) -> RunDifference:
    """What changed from one run to the other; ``Conflict`` if one is too old to have verdicts."""
    first, second = await detailed_runs(shared, caller, container_id, [before, after])
    if first.verdicts is None or second.verdicts is None:
        old = before if first.verdicts is None else after
        raise Conflict(
            f"run {old} has no figures of single queries any more: only the newest {eval_runs.MAX_DETAILED} runs of a "
            "setup have them. Choose a newer run"
        )
    return await asyncio.to_thread(
        difference, (first.run, first.verdicts), (second.run, second.verdicts)
    )


async def detailed_runs(
    shared: Gateway, caller: Principal, container_id: str, ids: Sequence[int]
) -> list[eval_runs.DetailedRun]:
    """The runs in the order of ``ids``; ``NotFound`` names the first that does not exist."""
    async with shared.stack.db.reading() as conn:
        container = await access.readable_one(conn, caller, container_id)
        found = await eval_runs.some(conn, container.id, ids)
    for one in ids:
        if one not in found:
            raise NotFound(
                f"container '{container_id}' has no evaluation run {one}; its list of runs names them",
                run=one,
            )
    return [found[one] for one in ids]
