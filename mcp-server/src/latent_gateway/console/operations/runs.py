"""Checks that take minutes: they run in the background of this gateway, and any gateway shows how they ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from fastapi import Request
from fastapi.responses import StreamingResponse

from latent_core.db import admin_runs
from latent_core.db.admin_runs import AdminRun
from latent_core.domain.errors import Conflict, Issue, IssueCode, LatentError, Unavailable
from latent_core.runtime.tasks import ended
from latent_gateway.console.frame.console_session import ConsoleSession, session_of
from latent_gateway.console.frame.live import LiveFragment, live
from latent_gateway.console.frame.view import draw
from latent_gateway.context import Gateway

logger = logging.getLogger(__name__)

Work = Callable[[], Awaitable[dict[str, Any]]]
"""The check; its result as JSON."""


@dataclass(frozen=True, slots=True)
class RunKind:
    """A kind of check."""

    name: str
    longest_seconds: float
    """Then a run without an end counts as lost."""


Shown = Callable[[ConsoleSession], Awaitable[dict[str, Any]]]
"""The template's values of the last run; ``open`` says whether it goes on."""


async def live_run(
    request: Request, shared: Gateway, session: ConsoleSession, template: str, shown: Shown
) -> StreamingResponse:
    """The last run after each change, until its end. Rights are checked every time."""
    await shown(session)

    async def look() -> LiveFragment:
        again = await session_of(request, shared)
        values = await shown(again)
        html = draw(f"operations/{template}", session=again, **values)
        return LiveFragment(html, ended=not values["open"])

    return live(shared, session, look)


async def last_run(shared: Gateway, principal: str, kind: RunKind) -> AdminRun | None:
    """The principal's last run of this kind."""
    async with shared.stack.db.reading() as conn:
        return await admin_runs.last(
            conn, principal, kind.name, longest_seconds=kind.longest_seconds
        )


async def start_run(
    shared: Gateway, principal: str, kind: RunKind, request: dict[str, Any], work: Work
) -> None:
    """Begin ``work`` in the background; ``Conflict`` while the principal's last one of this kind goes on."""
    run_id = uuid4()
    async with shared.stack.db.transaction() as conn:
        begun = await admin_runs.begin(
            conn,
            principal=principal,
            kind=kind.name,
            run_id=run_id,
            request=request,
            longest_seconds=kind.longest_seconds,
        )
    if not begun:
        raise Conflict("the last one has not ended yet: wait for it, this page shows its end")
    task = asyncio.create_task(_run(shared, principal, kind, run_id, work), name=f"run-{kind.name}")
    shared.runs.add(task)
    task.add_done_callback(shared.runs.discard)


async def _run(shared: Gateway, principal: str, kind: RunKind, run_id: UUID, work: Work) -> None:
    result: dict[str, Any] | None = None
    issue: Issue | None = None
    try:
        result = await _unless_closing(shared, work)
    except LatentError as error:
        issue = error.issue()
    except Exception:
        logger.exception("admin_run_failed", extra={"run": kind.name})
        issue = Issue(
            code=IssueCode.UNAVAILABLE, message="internal error: the gateway's log has the cause"
        )
    try:
        async with shared.stack.db.transaction() as conn:
            await admin_runs.end(
                conn,
                principal=principal,
                kind=kind.name,
                run_id=run_id,
                result=result,
                issue=None if issue is None else issue.model_dump(mode="json"),
            )
    except LatentError as error:
        logger.warning("admin_run_not_recorded", extra={"run": kind.name, "cause": error.message})


async def _unless_closing(shared: Gateway, work: Work) -> dict[str, Any]:
    """``Unavailable`` if the gateway stops before the end."""
    task = asyncio.ensure_future(work())
    closing = asyncio.create_task(shared.stack.closing.wait())
    try:
        await asyncio.wait({task, closing}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Unavailable("the gateway stopped before the end: start it again")
    finally:
        await ended(task, closing)
