"""Jobs: list, show, watch, cancel, requeue. A job is visible to those who may read its container."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Final

from fastapi import APIRouter, Header, Path, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import Field, WithJsonSchema

from latent_core.db import audit, containers
from latent_core.db.connection import Connection
from latent_core.db.spaces import spaces
from latent_core.domain import cursors
from latent_core.domain.errors import Conflict, Forbidden, NotFound, RateLimited, Unauthorized
from latent_core.domain.job import JobEvent, JobGroup, JobKind, JobState, JobView
from latent_core.domain.text import Text
from latent_core.domain.token import Scope as TokenScope
from latent_core.queue import admin, groups
from latent_core.wire.containers import ContainerState
from latent_core.wire.jobs import (
    JobAnswer,
    JobGroupAnswer,
    JobGroupList,
    JobList,
    RequeueAnswer,
    RequeueBody,
)
from latent_gateway.api.sse import (
    KEEP_ALIVE,
    LONGEST_STREAM_SECONDS,
    CountedStream,
    Rhythm,
    described,
    written,
)
from latent_gateway.auth import access
from latent_gateway.auth.principal import Principal
from latent_gateway.context import Caller, Gateway, RequestId, Shared
from latent_gateway.envelope import json_answer, waiting_headers
from latent_gateway.openapi import JOB_ID

router = APIRouter(tags=["jobs"])

FINAL: Final = frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED})
REQUESTED_BY_ADMINS: Final = frozenset(
    {JobKind.REFRESH, JobKind.EVAL, JobKind.EXPORT, JobKind.IMPORT}
)
"""Kinds that only scope admin may start; they also need it to be cancelled or requeued."""
MAX_CHOSEN: Final = 100
"""Per request for certain jobs."""
REQUEUED_AT_ONCE: Final = 200
"""Per request for all failed jobs."""
GroupId = Annotated[int, Path(gt=0, lt=2**63), WithJsonSchema(JOB_ID)]
EVENTS: Final = described(
    "Server-sent events until the job's final state: the event, its time, its details, and the job"
)


def _unknown(job_id: int) -> NotFound:
    return NotFound(f"job {job_id} does not exist, or you may not see it", job_id=str(job_id))


async def visible_job(
    conn: Connection, caller: Principal, job_id: int, *, to_change: bool = False
) -> JobView:
    """The job, if ``access.job_seen`` shows it to the caller; else ``NotFound``.

    Changing a job of a kind that needs scope admin needs that scope, too.
    """
    requested_id = job_id if 0 < job_id < 2**63 else 0
    job = await _or_none(conn, requested_id)
    job_container = None if job is None else job.container_id
    by = await admin.requested_by(conn, requested_id)
    seen = await access.job_seen(conn, caller, job_container, to_change=to_change, requested_by=by)
    if job is None or not seen:
        raise _unknown(job_id)
    if to_change and job.kind in REQUESTED_BY_ADMINS:
        access.require(caller, TokenScope.ADMIN)
    return job


@router.get("/v1/jobs", response_model=JobList)
async def list_jobs(
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    container_id: Annotated[Text | None, Query(max_length=64)] = None,
    status: Annotated[list[JobState] | None, Query()] = None,
    job_id: Annotated[
        list[Annotated[int, Field(gt=0, lt=2**63), WithJsonSchema(JOB_ID)]] | None,
        Query(max_length=MAX_CHOSEN),
    ] = None,
    group_id: Annotated[int | None, Query(gt=0, lt=2**63)] = None,
    limit: Annotated[int, Query(ge=1, le=cursors.MAX_PAGE)] = 100,
    cursor: Annotated[str | None, Query(max_length=128)] = None,
) -> Response:
    """Jobs, newest first. With ``job_id``, only these, in one page; with ``group_id``, those of one group."""
    async with shared.stack.db.reading() as conn:
        ids = await access.jobs_of(conn, caller, container_id)
        if job_id is not None:
            chosen = await admin.chosen(conn, job_id, container_ids=ids, states=status)
            return json_answer(JobList(jobs=chosen, next_cursor=None), request_id)
        if group_id is not None:
            found = await groups.jobs_of(
                conn, group_id, container_ids=ids, states=status, limit=limit, cursor=cursor
            )
        else:
            found = await admin.list_jobs(
                conn, container_ids=ids, states=status, limit=limit, cursor=cursor
            )
    return json_answer(JobList(jobs=found.jobs, next_cursor=found.next_cursor), request_id)


@router.get("/v1/job-groups", response_model=JobGroupList)
async def list_groups(
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    container_id: Annotated[Text | None, Query(max_length=64)] = None,
    status: Annotated[list[JobState] | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=cursors.MAX_PAGE)] = 50,
    cursor: Annotated[str | None, Query(max_length=128)] = None,
) -> Response:
    """Jobs by what a person requested, newest first, each with the number of jobs that follow from it. ``status``: groups
    with a job in one of these states."""
    async with shared.stack.db.reading() as conn:
        ids = await access.jobs_of(conn, caller, container_id)
        found = await groups.listed(
            conn, container_ids=ids, states=status, limit=limit, cursor=cursor
        )
    answer = JobGroupList(groups=found.groups, next_cursor=found.next_cursor)
    return json_answer(answer, request_id)


@router.get("/v1/job-groups/{group_id}", response_model=JobGroupAnswer)
async def show_group(
    group_id: GroupId, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """One group. ``GET /v1/jobs`` with ``group_id`` lists its jobs."""
    async with shared.stack.db.reading() as conn:
        found = await visible_group(conn, caller, group_id)
    return json_answer(JobGroupAnswer(group=found), request_id)


async def visible_group(conn: Connection, caller: Principal, group_id: int) -> JobGroup:
    """The group, if the caller sees the jobs of its container; else ``NotFound``."""
    batch = await groups.batch_of(conn, group_id)
    container = None if batch is None else batch.container_id
    seen = await access.job_seen(conn, caller, container, to_change=False)
    found = await groups.group_of(conn, batch) if batch is not None and seen else None
    if found is None:
        raise NotFound(
            f"job group {group_id} does not exist, or you may not see it", group_id=str(group_id)
        )
    return found


@router.get("/v1/jobs/{job_id}", response_model=JobAnswer)
async def show(job_id: int, shared: Shared, caller: Caller, request_id: RequestId) -> Response:
    """State, progress, cause, attempts and estimated time of a job."""
    async with shared.stack.db.reading() as conn:
        job = await visible_job(conn, caller, job_id)
    return json_answer(JobAnswer(job=job), request_id)


@router.get("/v1/jobs/{job_id}/events", response_class=StreamingResponse, responses=EVENTS)
async def events(
    job_id: int,
    shared: Shared,
    caller: Caller,
    last_event_id: Annotated[str | None, Header(max_length=64)] = None,
) -> StreamingResponse:
    """The job's history and new events, as server-sent events, until a final state."""
    async with shared.stack.db.transaction() as conn:
        await visible_job(conn, caller, job_id)
    after = (
        int(last_event_id)
        if last_event_id and last_event_id.isdecimal() and len(last_event_id) < 19
        else 0
    )
    shared.streams.take(caller)
    return CountedStream(_stream(shared, caller, job_id, after), shared.streams, caller)


async def _stream(
    shared: Gateway, caller: Principal, job_id: int, after: int
) -> AsyncIterator[bytes]:
    """Events with their ids, and the job whenever it has changed.

    Ends when the job is deleted or the caller may no longer see it: permissions are checked again on every read.
    """
    now = asyncio.get_running_loop().time
    until, rhythm = now() + LONGEST_STREAM_SECONDS, Rhythm(now())
    shown: JobView | None = None
    while now() < until and not shared.stack.closing.is_set():
        try:
            caller = await shared.tokens.renewed(caller)
            async with shared.stack.db.transaction() as conn:
                fresh = await admin.events(conn, job_id, after_id=after)
                job = await visible_job(conn, caller, job_id)
        except (Unauthorized, Forbidden, NotFound):
            return
        for event in fresh:
            after = event.id
            yield written(event.event, _event_data(event, job), event.id)
        if job != shown and not fresh:
            yield written("progress", {"job": job.model_dump(mode="json")})
        if rhythm.looked(now(), changed=job != shown or bool(fresh)):
            yield KEEP_ALIVE
        shown = job
        if job.state in FINAL and not fresh:
            yield written("end", {"job": job.model_dump(mode="json")})
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(rhythm.pause):
                await shared.stack.closing.wait()


async def _or_none(conn: Connection, job_id: int) -> JobView | None:
    """None if the job does not exist or is deleted."""
    try:
        return await admin.get(conn, job_id)
    except NotFound:
        return None


def _event_data(event: JobEvent, job: JobView) -> dict[str, object]:
    return {
        "event": event.event,
        "at": event.at.isoformat(),
        "details": event.details,
        "job": job.model_dump(mode="json"),
    }


@router.post("/v1/jobs/{job_id}/cancel", response_model=JobAnswer, status_code=202)
async def cancel(job_id: int, shared: Shared, caller: Caller, request_id: RequestId) -> Response:
    """Cancel a job: a queued job at once, a running job at its next step."""
    async with shared.stack.db.transaction() as conn:
        job = await visible_job(conn, caller, job_id, to_change=True)
        await admin.cancel(conn, job_id)
        await _note(conn, caller, "job.cancel", job, request_id)
        job = await visible_job(conn, caller, job_id)
    return json_answer(JobAnswer(job=job), request_id, status=202)


@router.post("/v1/jobs/{job_id}/requeue", response_model=JobAnswer, status_code=202)
async def requeue(job_id: int, shared: Shared, caller: Caller, request_id: RequestId) -> Response:
    """Run a failed or cancelled job again from the start."""
    async with shared.stack.db.transaction() as conn:
        job = await visible_job(conn, caller, job_id, to_change=True)
        await _check_open(conn, job)
        await shared.quotas.check_queue(conn, caller)
        await admin.requeue(conn, job_id)
        await _note(conn, caller, "job.requeue", job, request_id)
        job = await visible_job(conn, caller, job_id)
    shared.stack.wake()
    return json_answer(JobAnswer(job=job), request_id, status=202)


@router.post("/v1/requeue", response_model=RequeueAnswer, status_code=202)
async def requeue_failed(
    body: RequeueBody, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Run all failed jobs of a container, or of one group in it, again, oldest first, after their cause is removed.

    Stops when the queue is full: ``remaining`` counts the other jobs, and ``Retry-After`` says when to try again.
    """
    # Failed refreshes are requeued one by one: a container can have only one.
    but = {JobKind.REFRESH} if TokenScope.ADMIN in caller.scopes else REQUESTED_BY_ADMINS
    async with shared.stack.db.transaction() as conn:
        container = await access.writable(conn, caller, body.container_id)
        await access.held(conn, container)
        if body.group_id is not None:
            found = await groups.dead_letters(
                conn,
                body.group_id,
                container.id,
                limit=REQUEUED_AT_ONCE,
                cursor=body.cursor,
                but=but,
            )
        else:
            found = await admin.dead_letters(
                conn, container.id, limit=REQUEUED_AT_ONCE, cursor=body.cursor, but=but
            )
        again = RequeueRun(container.id, request_id, body.cursor)
        for done, job_id in enumerate(found):
            if not await again.try_one(conn, shared, caller, job_id):
                again.remaining = (
                    len(found) - done
                    if body.group_id is not None
                    else await admin.count_dead_letters(
                        conn, container.id, cursor=again.reached, but=but
                    )
                )
                break
    if again.full is not None and not again.moved:
        again.full.details["remaining"] = again.remaining
        raise again.full
    shared.stack.wake()
    return again.answer(more=len(found) == REQUEUED_AT_ONCE)


@dataclass(slots=True)
class RequeueRun:
    """The outcome of requeueing failed jobs of one container, in one transaction."""

    container_id: str
    request_id: str
    reached: str | None
    """The cursor after the last processed job."""
    moved: list[int] = field(default_factory=list)
    left: int = 0
    remaining: int = 0
    full: RateLimited | None = None

    async def try_one(
        self, conn: Connection, shared: Gateway, caller: Principal, job_id: int
    ) -> bool:
        """False if the queue is full."""
        try:
            await shared.quotas.check_queue(conn, caller)
        except RateLimited as full:
            self.full = full
            return False
        self.reached = str(job_id)
        try:
            await admin.requeue(conn, job_id)
        except (Conflict, NotFound):  # a newer job replaces it, or another request requeued it
            self.left += 1
            return True
        self.moved.append(job_id)
        await audit.note(
            conn,
            principal=caller.name,
            token_id=caller.token_id,
            action="job.requeue",
            container_id=self.container_id,
            object_=str(job_id),
            request_id=self.request_id,
        )
        return True

    def answer(self, *, more: bool) -> Response:
        full = self.full
        requeued = RequeueAnswer(
            job_ids=self.moved,
            left=self.left,
            remaining=self.remaining,
            next_cursor=self.reached if more or full is not None else None,
            partial=full is not None,
            issues=[full.issue()] if full is not None else [],
        )
        headers = waiting_headers(full) if full is not None else None
        return json_answer(requeued, self.request_id, status=202, headers=headers)


async def _check_open(conn: Connection, job: JobView) -> None:
    """Raises ``Conflict`` if the job's container accepts no work or has an open refresh. Neither changes until the
    transaction ends. Jobs without a container, or of a deleted one, always pass."""
    if not job.container_id:
        return
    refreshes = job.kind is JobKind.REFRESH
    if refreshes:  # as for a new refresh: no other one can start in the meantime
        await spaces.lock(conn, job.container_id)
    state = await containers.hold(conn, job.container_id)
    if state is not None and state is not ContainerState.ACTIVE:
        raise access.closed(job.container_id, state)
    running = await admin.open_refresh(conn, job.container_id) if refreshes else None
    if running is not None and running != job.job_id:
        raise Conflict(
            f"job {running} refreshes container '{job.container_id}': wait until it ends, or cancel it",
            job_id=str(running),
        )


async def _note(
    conn: Connection, caller: Principal, action: str, job: JobView, request_id: str
) -> None:
    await audit.note(
        conn,
        principal=caller.name,
        token_id=caller.token_id,
        action=action,
        container_id=job.container_id,
        object_=str(job.job_id),
        request_id=request_id,
    )
