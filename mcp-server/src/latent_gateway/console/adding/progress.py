"""What became of the files of a batch: the script asks for the jobs that it has seen begin."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Response
from pydantic import BaseModel, Field

from latent_core.domain.ids import WireJobId
from latent_core.domain.job import JobState
from latent_core.queue import admin
from latent_core.wire.base import RequestBody
from latent_gateway.auth import access
from latent_gateway.console.adding.script_route import script_routes
from latent_gateway.console.frame.console_session import SignedIn
from latent_gateway.context import Shared

router = script_routes()

MAX_JOBS: Final = 200


class ProgressBody(RequestBody):
    jobs: Annotated[list[Annotated[int, Field(ge=1, lt=2**63)]], Field(max_length=MAX_JOBS)]


class FailedJob(BaseModel):
    job_id: WireJobId
    message: str
    """Cause and remedy."""


class BatchProgress(BaseModel):
    open: list[WireJobId]
    failed: list[FailedJob]


@router.post("/console/containers/{container_id}/progress")
async def progress(
    container_id: str, body: ProgressBody, shared: Shared, session: SignedIn
) -> Response:
    """The jobs that are open or have failed; all others are done."""
    async with shared.stack.db.reading() as conn:
        found = await access.jobs_of(conn, session.principal, container_id)
        outcomes = await admin.outcomes(conn, found, body.jobs)
    shown = BatchProgress(
        open=[one.job_id for one in outcomes if one.state in (JobState.QUEUED, JobState.RUNNING)],
        failed=[
            FailedJob(job_id=one.job_id, message=_message(one))
            for one in outcomes
            if one.state in (JobState.FAILED, JobState.CANCELLED)
        ],
    )
    return Response(shown.model_dump_json(), media_type="application/json")


def _message(outcome: admin.JobOutcome) -> str:
    if outcome.state is JobState.CANCELLED:
        return "The job was cancelled. Requeue it on its page."
    return outcome.cause or "The job failed. Its page shows why."
