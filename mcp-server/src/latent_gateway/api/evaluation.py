"""``POST /v1/containers/{id}/eval``: run judged queries as a job; ``GET``: the last saved runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Final

from fastapi import APIRouter, Query, Response

from latent_core.db import audit, eval_runs
from latent_core.domain import cursors
from latent_core.domain.golden import GoldenSet
from latent_core.domain.job import JobKind, NewJob
from latent_core.eval.datasets import read_golden
from latent_core.eval.run import questions_of, setups_of
from latent_core.queue.enqueue import enqueue
from latent_core.wire.evaluation import EvalRequest, EvalRuns
from latent_core.wire.jobs import JobAccepted
from latent_gateway.auth import access
from latent_gateway.context import Caller, RequestId, Shared
from latent_gateway.envelope import json_answer

router = APIRouter(tags=["evaluation"])

ATTEMPTS: Final = 3
LAST: Final = 2**63 - 1


@router.post("/v1/containers/{container_id}/eval", response_model=JobAccepted, status_code=202)
async def evaluate(
    container_id: str, body: EvalRequest, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Measure the retrieval of a container with golden or judged queries. The report is the job's ``result``."""
    async with shared.stack.db.transaction() as conn:
        container = await access.measurable(conn, caller, container_id)
    if body.golden is None and not body.judged:
        golden = await asyncio.to_thread(golden_of, shared.settings.manifests, container.id)
        body = body.model_copy(update={"golden": golden})
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
            action="container.eval",
            container_id=container.id,
            object_=None,
            request_id=request_id,
        )
    shared.stack.wake()
    return json_answer(JobAccepted(job_id=job_id), request_id, status=202)


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


def golden_of(manifests: Path, container_id: str) -> GoldenSet | None:
    """The golden queries in the server's manifest folder."""
    for file in (
        manifests / container_id / "eval.json",
        manifests / f"{container_id}.eval.json",
    ):
        if file.is_file():
            return read_golden(file, f"manifests/{file.relative_to(manifests)}")
    return None
