"""Jobs: running and failed ones with their causes, updated live where scripts run; cancel and requeue."""

from __future__ import annotations

from typing import Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import Query, Request, Response
from fastapi.responses import RedirectResponse

from latent_core.db.connection import Connection
from latent_core.domain.errors import Forbidden
from latent_core.domain.job import JobState
from latent_core.domain.text import Text
from latent_core.domain.token import Scope
from latent_core.queue import admin
from latent_gateway.api import jobs as api
from latent_gateway.api.jobs import FINAL, visible_job
from latent_gateway.auth import access
from latent_gateway.console.frame.console_session import ConsoleSession, SignedIn, session_of
from latent_gateway.console.frame.live import LiveFragment, live
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.frame.view import HEADERS, draw, page
from latent_gateway.context import Gateway, RequestId, Shared

router = pages()

JOBS: Final = 30
EVENTS_SHOWN: Final = 100
REFRESH_SECONDS: Final = 5
"""Without scripts, a page with open jobs reloads at this interval."""

Container = Annotated[Text, Query(max_length=64)]
Status = Annotated[str, Query(max_length=16)]
Cursor = Annotated[str, Query(max_length=128)]


@router.get("/console/jobs")
async def jobs_page(
    shared: Shared,
    session: SignedIn,
    container: Container = "",
    status: Status = "",
    cursor: Cursor = "",
) -> Response:
    """Jobs, newest first."""
    shown = await _list(shared, session, container, status, cursor)
    params = {"container": container, "status": status, "cursor": cursor}
    given = urlencode({name: value for name, value in params.items() if value})
    return page(
        "operations/jobs.html",
        session,
        **shown,
        params=params,
        states=[state.value for state in JobState],
        stream=f"/console/jobs/live?{given}",
    )


@router.get("/console/jobs/live")
async def jobs_live(
    request: Request,
    shared: Shared,
    session: SignedIn,
    container: Container = "",
    status: Status = "",
    cursor: Cursor = "",
) -> Response:
    """The list after each change. Permissions are checked every time."""
    await _list(shared, session, container, status, cursor)

    async def look() -> LiveFragment:
        again = await session_of(request, shared)
        shown = await _list(shared, again, container, status, cursor)
        return LiveFragment(draw("operations/joblist.html", session=again, **shown), ended=False)

    return live(shared, session, look)


async def _list(
    shared: Gateway, session: ConsoleSession, container: str, status: str, cursor: str
) -> dict[str, Any]:
    states = [state for state in JobState if state.value == status]
    async with shared.stack.db.reading() as conn:
        seen = await access.jobs_of(conn, session.principal, None)
        ids = await access.jobs_of(conn, session.principal, container) if container else seen
        own = await _own(conn, session)
        found = await admin.list_jobs(
            conn, container_ids=ids, states=states or None, limit=JOBS, cursor=cursor or None
        )
    return {
        "jobs": found.jobs,
        "following": found.next_cursor,
        "own": own,
        "containers": seen,
        "open": any(job.state not in FINAL for job in found.jobs),
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
        own = await _own(conn, session)
    return {
        "job": job,
        "events": events[-EVENTS_SHOWN:],
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


def _back(job_id: int) -> RedirectResponse:
    return RedirectResponse(f"/console/jobs/{job_id}", 303, HEADERS)
