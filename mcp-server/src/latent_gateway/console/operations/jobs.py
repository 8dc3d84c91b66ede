"""Jobs: by what a person requested, with what follows folded, or one by one; updated live; cancel and requeue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import Form, Query, Request, Response
from fastapi.responses import RedirectResponse

from latent_core.db.connection import Connection
from latent_core.domain.errors import Conflict, Forbidden, RateLimited
from latent_core.domain.job import JobState
from latent_core.domain.text import Text
from latent_core.domain.token import Scope
from latent_core.queue import admin, groups
from latent_core.wire.jobs import RequeueAnswer, RequeueBody
from latent_gateway.api import jobs as api
from latent_gateway.api.jobs import FINAL, visible_group, visible_job
from latent_gateway.auth import access
from latent_gateway.console.frame.console_session import ConsoleSession, SignedIn, session_of
from latent_gateway.console.frame.live import LiveFragment, live
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.frame.text_format import amount
from latent_gateway.console.frame.view import HEADERS, done, draw, page
from latent_gateway.context import Gateway, RequestId, Shared

router = pages()

GROUPS: Final = 30
JOBS: Final = 30
JOBS_OF_GROUP: Final = 50
EVENTS_SHOWN: Final = 100
MAX_ROUNDS: Final = 25
"""Requests for 200 jobs each that one press of "all" makes."""
OPEN_STATES: Final = frozenset({JobState.QUEUED, JobState.RUNNING})
SHOWN: Final = {
    "": "all",
    "open": "open",
    "failed": "failed",
    "done": "done",
    "cancelled": "cancelled",
}
"""The filter, and its label."""

Container = Annotated[Text, Query(max_length=64)]
Status = Annotated[str, Query(max_length=16)]
Cursor = Annotated[str, Query(max_length=128)]
View = Annotated[str, Query(max_length=8)]


@dataclass(frozen=True, slots=True)
class JobFilter:
    """What a page of jobs shows."""

    container: str
    status: str
    cursor: str
    view: str
    """``jobs``: one by one, those that follow from others as well; else groups."""

    @property
    def states(self) -> frozenset[JobState] | None:
        if self.status == "open":
            return OPEN_STATES
        return frozenset(state for state in JobState if state.value == self.status) or None

    def query(self, **changes: str | None) -> str:
        values = {
            "container": self.container,
            "status": self.status,
            "cursor": self.cursor,
            "view": self.view,
        } | changes
        return urlencode({name: value for name, value in values.items() if value})


@router.get("/console/jobs")
async def jobs_page(
    shared: Shared,
    session: SignedIn,
    container: Container = "",
    status: Status = "",
    cursor: Cursor = "",
    view: View = "",
) -> Response:
    """Newest first."""
    chosen = JobFilter(container, status, cursor, view)
    shown = await _list(shared, session, chosen)
    return page(
        "operations/jobs.html",
        session,
        **shown,
        choices=SHOWN,
        stream=f"/console/jobs/live?{chosen.query()}",
    )


@router.get("/console/jobs/live")
async def jobs_live(
    request: Request,
    shared: Shared,
    session: SignedIn,
    container: Container = "",
    status: Status = "",
    cursor: Cursor = "",
    view: View = "",
) -> Response:
    """The list after each change. Permissions are checked every time."""
    chosen = JobFilter(container, status, cursor, view)
    await _list(shared, session, chosen)

    async def look() -> LiveFragment:
        again = await session_of(request, shared)
        shown = await _list(shared, again, chosen)
        return LiveFragment(draw("operations/joblist.html", session=again, **shown), ended=False)

    return live(shared, session, look)


async def _list(shared: Gateway, session: ConsoleSession, chosen: JobFilter) -> dict[str, Any]:
    async with shared.stack.db.reading() as conn:
        seen = await access.jobs_of(conn, session.principal, None)
        ids = seen
        if chosen.container:
            ids = await access.jobs_of(conn, session.principal, chosen.container)
        own = await _own(conn, session)
        shown: dict[str, Any] = {"groups": [], "jobs": []}
        if chosen.view == "jobs":
            jobs = await admin.list_jobs(
                conn,
                container_ids=ids,
                states=chosen.states,
                limit=JOBS,
                cursor=chosen.cursor or None,
            )
            shown["jobs"], following = jobs.jobs, jobs.next_cursor
        else:
            found = await groups.listed(
                conn,
                container_ids=ids,
                states=chosen.states,
                limit=GROUPS,
                cursor=chosen.cursor or None,
            )
            shown["groups"], following = found.groups, found.next_cursor
    return {
        **shown,
        "chosen": chosen,
        "following": following,
        "own": own,
        "containers": seen,
        "open": any(job.state not in FINAL for job in shown["jobs"])
        or any(group.jobs.open + group.followers.open for group in shown["groups"]),
    }


@router.get("/console/job-groups/{group_id}")
async def group_page(
    group_id: int, shared: Shared, session: SignedIn, cursor: Cursor = ""
) -> Response:
    """What a person requested, and all jobs of it."""
    shown = await _group(shared, session, group_id, cursor)
    return page(
        "operations/group.html",
        session,
        **shown,
        stream=f"/console/job-groups/{group_id}/live?cursor={cursor}",
    )


@router.get("/console/job-groups/{group_id}/live")
async def group_live(
    group_id: int, request: Request, shared: Shared, session: SignedIn, cursor: Cursor = ""
) -> Response:
    """The group after each change, until all its jobs have ended."""
    await _group(shared, session, group_id, cursor)

    async def look() -> LiveFragment:
        again = await session_of(request, shared)
        shown = await _group(shared, again, group_id, cursor)
        html = draw("operations/groupstate.html", session=again, **shown)
        return LiveFragment(html, ended=not shown["open"])

    return live(shared, session, look)


async def _group(
    shared: Gateway, session: ConsoleSession, group_id: int, cursor: str
) -> dict[str, Any]:
    async with shared.stack.db.reading() as conn:
        group = await visible_group(conn, session.principal, group_id if group_id > 0 else 0)
        requested = await groups.jobs_of(
            conn,
            group_id,
            container_ids=[group.container_id],
            requested=True,
            limit=JOBS_OF_GROUP,
            cursor=cursor or None,
        )
        followers = await groups.jobs_of(
            conn,
            group_id,
            container_ids=[group.container_id],
            requested=False,
            limit=JOBS_OF_GROUP,
        )
        own = await _own(conn, session)
    return {
        "group": group,
        "requested": requested.jobs,
        "followers": followers.jobs,
        "following": requested.next_cursor,
        "own": own,
        "open": bool(group.jobs.open or group.followers.open),
    }


@router.get("/console/jobs/{job_id}")
async def job_page(job_id: int, shared: Shared, session: SignedIn) -> Response:
    shown = await _one(shared, session, job_id)
    return page("operations/job.html", session, **shown, stream=f"/console/jobs/{job_id}/live")


@router.get("/console/jobs/{job_id}/live")
async def job_live(job_id: int, request: Request, shared: Shared, session: SignedIn) -> Response:
    """The job after each change, until it has ended."""
    await _one(shared, session, job_id)

    async def look() -> LiveFragment:
        again = await session_of(request, shared)
        shown = await _one(shared, again, job_id)
        return LiveFragment(
            draw("operations/jobstate.html", session=again, **shown), ended=not shown["open"]
        )

    return live(shared, session, look)


async def _one(shared: Gateway, session: ConsoleSession, job_id: int) -> dict[str, Any]:
    async with shared.stack.db.reading() as conn:
        job = await visible_job(conn, session.principal, job_id)
        events = await admin.events(conn, job_id)
        group_id = await groups.of_job(conn, job_id)
        own = await _own(conn, session)
    return {
        "job": job,
        "events": events[-EVENTS_SHOWN:],
        "group_id": group_id,
        "own": own,
        "open": job.state not in FINAL,
    }


async def _own(conn: Connection, session: ConsoleSession) -> frozenset[str]:
    """Containers whose jobs this user may change."""
    try:
        found = await access.all_permitted(conn, session.principal, Scope.WRITE)
    except Forbidden:  # a token that only reads
        return frozenset()
    return frozenset(c.id for c in found)


@router.post("/console/jobs/{job_id}/cancel")
async def cancel(
    job_id: int, shared: Shared, session: SignedIn, request_id: RequestId
) -> RedirectResponse:
    await api.cancel(job_id, shared, session.principal, request_id)
    return _back(job_id)


@router.post("/console/jobs/{job_id}/requeue")
async def requeue(
    job_id: int, shared: Shared, session: SignedIn, request_id: RequestId
) -> RedirectResponse:
    await api.requeue(job_id, shared, session.principal, request_id)
    return _back(job_id)


@router.post("/console/requeue")
async def requeue_all(
    shared: Shared,
    session: SignedIn,
    container: Annotated[str, Form(max_length=64)] = "",
    group: Annotated[int | None, Form(gt=0, lt=2**63)] = None,
) -> RedirectResponse:
    """Run failed jobs again: those of a group, of a container, or of all containers that this user may change."""
    after = f"/console/job-groups/{group}" if group is not None else "/console/jobs?status=failed"
    if container:
        found = await _requeued(shared, session, container, group)
        return done(after, _outcome(len(found.job_ids), found.left, found.remaining))
    async with shared.stack.db.reading() as conn:
        own = await _own(conn, session)
        failed = await groups.listed(
            conn, container_ids=own, states=[JobState.FAILED], limit=GROUPS
        )
    moved = left = remaining = 0
    for one in sorted({each.container_id for each in failed.groups}):
        try:
            found = await _requeued(shared, session, one, None)
        except Conflict:  # a container that is read-only now keeps its failed jobs
            continue
        moved, left, remaining = (
            moved + len(found.job_ids),
            left + found.left,
            remaining + found.remaining,
        )
        if remaining:
            break
    return done(after, _outcome(moved, left, remaining))


async def _requeued(
    shared: Gateway, session: ConsoleSession, container: str, group: int | None
) -> RequeueAnswer:
    """All rounds together, as the client makes them."""
    total = RequeueAnswer(job_ids=[], left=0)
    cursor: str | None = None
    for _ in range(MAX_ROUNDS):
        body = RequeueBody(container_id=container, group_id=group, cursor=cursor)
        try:
            answer = await api.requeue_failed(body, shared, session.principal, session.request_id)
        except RateLimited as full:
            if not total.job_ids:
                raise
            total.remaining = int(full.details.get("remaining", 0))
            break
        found = RequeueAnswer.model_validate_json(bytes(answer.body))
        total.job_ids += found.job_ids
        total.left += found.left
        total.remaining, cursor = found.remaining, found.next_cursor
        if cursor is None or found.remaining:
            break
    return total


def _outcome(moved: int, left: int, remaining: int) -> str:
    words = f"{amount(moved, 'job')} queued again."
    if left:
        words += f" {amount(left, 'job')} stay failed, because newer jobs do their work."
    if remaining:
        words += f" The queue is full: {amount(remaining, 'job')} remain. Try again later."
    return words


def _back(job_id: int) -> RedirectResponse:
    return RedirectResponse(f"/console/jobs/{job_id}", 303, HEADERS)
