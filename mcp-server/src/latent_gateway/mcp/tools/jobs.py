"""``jobs_get``."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Annotated, Final

from pydantic import Field

from latent_core.domain.job import JobState, JobView
from latent_gateway.api.jobs import FINAL, visible_job
from latent_gateway.api.sse import Rhythm
from latent_gateway.mcp.calls import Scope, ToolCall
from latent_gateway.mcp.compact import cut
from latent_gateway.mcp.results import ToolResult
from latent_gateway.mcp.tools.arguments import CLAMPED
from latent_gateway.mcp.tools.port import Arguments, Tool, UntrustedContent

MAX_WAIT_SECONDS: Final = 50
MAX_WORDS_BYTES: Final = 1_000


class JobArguments(Arguments):
    job_id: Annotated[int, Field(ge=1, lt=2**63, json_schema_extra={"type": "string"})]
    wait_seconds: Annotated[
        int,
        Field(ge=0, le=MAX_WAIT_SECONDS, description="Wait for its end: default 0, up to 50."),
        CLAMPED,
    ] = 0


class JobWords(UntrustedContent):
    """Texts that may quote the source."""

    source: str | None = None
    note: str | None = None
    cause: str | None = None
    warnings: list[str] = []


class Job(ToolResult):
    job_id: str
    kind: str
    container_id: str
    doc_id: str | None = None
    state: str
    done: int = 0
    total: int | None = None
    eta_seconds: float | None = None
    attempts: int = 0
    cause_code: str | None = None
    finished_at: str | None = None
    untrusted_content: JobWords = JobWords()
    advice: str | None = None


async def get(call: ToolCall, arguments: JobArguments) -> Job:
    if not arguments.wait_seconds:
        return _job_view(await _look(call, arguments.job_id))
    streams = call.shared.streams  # a waiting call polls the database like an event stream
    streams.take(call.caller)
    try:
        return _job_view(await _ended(call, arguments.job_id, arguments.wait_seconds))
    finally:
        streams.give_back(call.caller)


async def _look(call: ToolCall, job_id: int) -> JobView:
    """The job, with the rights of the caller's token now: they may change during the wait."""
    caller = await call.shared.tokens.renewed(call.caller)
    async with call.shared.stack.db.reading() as conn:
        return await visible_job(conn, caller, job_id)


async def _ended(call: ToolCall, job_id: int, seconds: float) -> JobView:
    """The job at its end, or its state after the time limit."""
    now = asyncio.get_running_loop().time
    until, rhythm, closing = now() + seconds, Rhythm(now()), call.shared.stack.closing
    shown: JobView | None = None
    while True:
        job = await _look(call, job_id)
        left = until - now()
        if job.state in FINAL or left <= 0 or closing.is_set():
            return job
        if job != shown:
            await call.progress(job.progress_done, job.progress_total, job.state.value)
        rhythm.looked(now(), changed=job != shown)
        shown = job
        with suppress(TimeoutError):
            async with asyncio.timeout(min(rhythm.pause, left)):
                await closing.wait()


def _job_view(job: JobView) -> Job:
    words = JobWords(
        source=_cut(job.source_uri),
        note=_cut(job.progress_note),
        cause=_cut(job.cause.message) if job.cause else None,
        warnings=[cut(w.message, MAX_WORDS_BYTES) for w in job.warnings[:3]],
    )
    return Job(
        job_id=str(job.job_id),
        kind=job.kind.value,
        container_id=job.container_id,
        doc_id=str(job.doc_id) if job.doc_id else None,
        state=job.state.value,
        done=job.progress_done,
        total=job.progress_total,
        eta_seconds=job.eta_seconds,
        attempts=job.attempts,
        cause_code=job.cause.code.value if job.cause else None,
        finished_at=job.finished_at.isoformat(timespec="seconds") if job.finished_at else None,
        untrusted_content=words,
        advice=_advice(job),
    )


def _cut(text: str | None) -> str | None:
    return None if text is None else cut(text, MAX_WORDS_BYTES)


def _advice(job: JobView) -> str | None:
    match job.state:
        case JobState.QUEUED | JobState.RUNNING:
            return "Not done yet: call again with wait_seconds."
        case JobState.FAILED:
            return "The job failed and is not retried. Fix its cause, then add the source again."
    return None


GET: Final = Tool(
    name="jobs.get",
    title="State of a job",
    description="State, progress and error of a job, at once or when it has ended.",
    scope=Scope.READ,
    also=Scope.WRITE,
    arguments=JobArguments,
    answer=Job,
    run=get,
    seconds=MAX_WAIT_SECONDS + 10.0,
)
