"""The tab Refresh of a container: another embedder, planned first; gates, switch and the way back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import Form, Request, Response
from pydantic import ValidationError

from latent_core.db.spaces import spaces
from latent_core.domain.errors import Invalid, LatentError
from latent_core.domain.job import JobKind, JobView
from latent_core.queue import admin
from latent_core.wire.refresh import (
    PlanAnswer,
    RefreshBody,
    RefreshPlan,
    RollbackAnswer,
    RollbackBody,
    Strategy,
    Way,
)
from latent_gateway.api import refresh as api
from latent_gateway.auth import access
from latent_gateway.console.frame.console_session import ConsoleSession, SignedIn, session_of
from latent_gateway.console.frame.live import LiveFragment, live
from latent_gateway.console.frame.rights import rights_of
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.frame.view import done, draw, page
from latent_gateway.context import Gateway, Shared

router = pages()

JOBS_READ: Final = 200
JOBS_SHOWN: Final = 5
STRATEGIES: Final = {
    Strategy.PARALLEL: "build beside, then switch",
    Strategy.INPLACE: "re-embed in place",
    Strategy.DRIFT: "map by an adapter, without a full re-embed",
    Strategy.REPARSE: "read the originals again",
}


@dataclass(frozen=True, slots=True)
class RefreshForm:
    """What was typed."""

    embedder: str = ""
    strategy: str = Strategy.PARALLEL.value
    way: str = ""
    keep_days: str = ""
    force: bool = False

    def body(self, container_id: str, *, dry_run: bool) -> RefreshBody:
        """``Invalid`` names what does not fit together."""
        values: dict[str, Any] = {
            "container_id": container_id,
            "strategy": self.strategy,
            "force": self.force,
            "dry_run": dry_run,
        }
        if self.embedder:
            values["to"] = {"embedder": self.embedder}
        if self.way and self.strategy == Strategy.DRIFT:
            values["way"] = self.way
        if self.keep_days:
            values["keep_days"] = self.keep_days
        try:
            return RefreshBody.model_validate(values)
        except ValidationError as exc:
            message = "; ".join(
                str(one["msg"]).removeprefix("Value error, ") for one in exc.errors()
            )
            raise Invalid(message) from exc


@router.get("/console/containers/{container_id}/refresh")
async def refresh_page(container_id: str, shared: Shared, session: SignedIn) -> Response:
    return await _page(shared, session, container_id)


async def _page(
    shared: Gateway,
    session: ConsoleSession,
    container_id: str,
    *,
    form: RefreshForm | None = None,
    plan: RefreshPlan | None = None,
    error: str = "",
) -> Response:
    shown = await _state(shared, session, container_id)
    return page(
        "operations/refresh.html",
        session,
        status=422 if error else 200,
        **shown,
        tab="refresh",
        form=form or RefreshForm(),
        strategies=[(key.value, label) for key, label in STRATEGIES.items()],
        ways=[("", "default")] + [(way.value, way.value) for way in Way],
        embedders=await _embedders(shared),
        plan=plan,
        error=error,
        keep_days=shared.settings.refresh_keep_days,
    )


async def _embedders(shared: Gateway) -> list[str]:
    """Names that the form offers: the built-in ones, installed ones, and those in use."""
    registry = shared.stack.embedders
    async with shared.stack.db.reading() as conn:
        used = await spaces.embedders(conn)
    installed = [model.name for model in registry.store.models() if model.kind != "reranker"]
    return sorted({"local", *used, *installed})


@router.get("/console/containers/{container_id}/refresh/live")
async def refresh_live(
    container_id: str, request: Request, shared: Shared, session: SignedIn
) -> Response:
    """Spaces and jobs after each change."""
    await _state(shared, session, container_id)

    async def look() -> LiveFragment:
        again = await session_of(request, shared)
        shown = await _state(shared, again, container_id)
        html = draw("operations/refreshstate.html", session=again, **shown)
        return LiveFragment(html, ended=False)

    return live(shared, session, look)


async def _state(shared: Gateway, session: ConsoleSession, container_id: str) -> dict[str, Any]:
    async with shared.stack.db.reading() as conn:
        container = await access.owned(conn, session.principal, container_id)
        found = await spaces.of_container(conn, container.id)
        jobs = await admin.list_jobs(conn, container_ids=[container.id], limit=JOBS_READ)
    refreshes: list[JobView] = [job for job in jobs.jobs if job.kind is JobKind.REFRESH]
    rights = rights_of(session.principal, container)
    return {
        "container": container,
        "rights": rights,
        "spaces": found,
        "jobs": refreshes[:JOBS_SHOWN],
        "own": frozenset({container.id}) if rights.write else frozenset(),
        "can_roll_back": rights.closed is None
        and any(one.state in ("building", "retired") for one in found),
    }


@router.post("/console/containers/{container_id}/refresh")
async def begin(
    container_id: str,
    shared: Shared,
    session: SignedIn,
    embedder: Annotated[str, Form(max_length=512)] = "",
    strategy: Annotated[str, Form(max_length=16)] = Strategy.PARALLEL.value,
    way: Annotated[str, Form(max_length=16)] = "",
    keep_days: Annotated[str, Form(max_length=8)] = "",
    force: Annotated[bool, Form()] = False,
    dry_run: Annotated[bool, Form()] = False,
) -> Response:
    """The plan, or the beginning. What does not work is shown above the form, as it was typed."""
    async with shared.stack.db.reading() as conn:
        await access.owned(conn, session.principal, container_id)
    form = RefreshForm(embedder.strip(), strategy, way, keep_days.strip(), force)
    try:
        body = form.body(container_id, dry_run=dry_run)
        answer = await api.refreshed(shared, session.principal, body, session.request_id)
    except LatentError as exc:
        return await _page(shared, session, container_id, form=form, error=exc.message)
    if isinstance(answer, PlanAnswer):
        return await _page(shared, session, container_id, form=form, plan=answer.plan)
    return done(
        f"/console/containers/{container_id}/refresh",
        f"The refresh has begun as job {answer.job_id}.",
    )


@router.post("/console/containers/{container_id}/rollback")
async def roll_back(container_id: str, shared: Shared, session: SignedIn) -> Response:
    """Back to the former space, or the end of a build."""
    answer = await api.back(
        RollbackBody(container_id=container_id), shared, session.principal, session.request_id
    )
    found = RollbackAnswer.model_validate_json(bytes(answer.body))
    message = f"{container_id} is searched with {found.now.embedder} {found.now.version}."
    if found.aborted is not None:
        message = f"The build with {found.aborted.embedder} was ended. {message}"
    return done(f"/console/containers/{container_id}/refresh", message)
