"""``POST /v1/admin/refresh``: another embedding space, or new vectors; ``…/rollback``: back to the previous space."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Response

from latent_core.db import golden
from latent_core.db.containers import Space
from latent_core.refresh.lifecycle import begin, manifest_after, note_before_rollback, rollback
from latent_core.refresh.plan import plan
from latent_core.runtime.failpoint import failpoint
from latent_core.wire.refresh import (
    ModelView,
    PlanAnswer,
    RefreshAnswer,
    RefreshBody,
    RefreshPayload,
    RollbackAnswer,
    RollbackBody,
    Strategy,
)
from latent_gateway.auth import access
from latent_gateway.auth.principal import Principal
from latent_gateway.context import Caller, Gateway, RequestId, Shared
from latent_gateway.envelope import json_answer

router = APIRouter(tags=["admin"])

MAX_GOLDEN: Final = 500
"""Queries of the gates of a switch: each runs several times on both spaces."""


PLANNED: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": PlanAnswer, "description": "The plan of a dry run"}
}


@router.post(
    "/v1/admin/refresh",
    response_model=RefreshAnswer,
    status_code=202,
    responses=PLANNED,
)
async def refresh(
    body: RefreshBody, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Change the embedder of a container, or create its vectors or chunks again. ``dry_run`` returns the cost and
    changes nothing."""
    answer = await refreshed(shared, caller, body, request_id)
    return json_answer(answer, request_id, status=200 if body.dry_run else 202)


async def refreshed(
    shared: Gateway, caller: Principal, body: RefreshBody, request_id: str
) -> RefreshAnswer | PlanAnswer:
    """The job, once it is stored; with ``dry_run`` the plan."""
    stack, settings = shared.stack, shared.settings
    async with stack.db.transaction() as conn:
        lookup = access.owned if body.dry_run else access.changeable
        container = await lookup(conn, caller, body.container_id)
        judged = body.strategy in (Strategy.PARALLEL, Strategy.DRIFT)
        golden_set = await golden.read(conn, container.id, MAX_GOLDEN) if judged else None
    refresh_request = body.request()
    if body.dry_run:
        queries = len(golden_set.queries) if golden_set is not None else 0
        planned = await plan(stack.db, stack.embedders, container, refresh_request, queries)
        return PlanAnswer(plan=planned)
    keep_days = (
        settings.refresh_keep_days
        if refresh_request.keep_days is None
        else refresh_request.keep_days
    )
    payload = RefreshPayload(
        strategy=refresh_request.strategy,
        space_id=container.space.id,
        to=refresh_request.to,
        way=refresh_request.way,
        force=refresh_request.force,
        keep_days=keep_days,
        golden=golden_set,
    )
    target = manifest_after(container, refresh_request)
    if refresh_request.strategy is not Strategy.REPARSE:
        await stack.embedders.measure(target)
    async with stack.embedders.held(target.embedder), stack.db.transaction() as conn:
        await shared.quotas.check_queue(conn, caller)
        await stack.capacity.check(conn)
        begun = await begin(
            conn,
            stack.embedders,
            container.id,
            refresh_request,
            payload,
            principal=caller.name,
            request_id=request_id,
        )
    stack.wake()
    if begun.model is not None:
        shared.warmer.soon(begun.model)
    return RefreshAnswer(job_id=begun.job_id, space_id=begun.space)


@router.post("/v1/admin/rollback", response_model=RollbackAnswer)
async def back(
    body: RollbackBody, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Search the previous space of a container again, at once, or cancel a build that has not been switched to."""
    settings = shared.settings
    async with shared.stack.db.transaction() as conn:
        container = await access.changeable(conn, caller, body.container_id)
        await note_before_rollback(conn, container.id)
    async with shared.stack.db.transaction() as conn:
        container = await access.changed_alone(conn, caller, body.container_id)
        done = await rollback(
            conn,
            container.id,
            keep_days=settings.refresh_keep_days,
            lease_seconds=settings.lease_seconds,
            principal=caller.name,
            request_id=request_id,
        )
        failpoint("rollback.before_commit")
    failpoint("rollback.after_commit")
    shared.stack.wake()
    now = container.space if done.switched is None else done.switched.new
    answer = RollbackAnswer(
        aborted=_view(done.aborted) if done.aborted is not None else None,
        was=_view(done.switched.old) if done.switched is not None else None,
        now=_view(now),
    )
    return json_answer(answer, request_id)


def _view(space: Space) -> ModelView:
    return ModelView(embedder=space.embedder, version=space.lineage, dims=space.dims)
