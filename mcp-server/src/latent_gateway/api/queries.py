"""``/v1/containers/{id}/queries``: what was searched for, where the manifest asks for a log (``query_log.keep_days``)."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query, Response

from latent_core.db import audit, query_log
from latent_core.domain.manifest.model import MAX_LOG_DAYS
from latent_core.wire.queries import QueryKind, QueryLogAnswer, QueryLogCleared
from latent_gateway.auth import access
from latent_gateway.auth.principal import Principal
from latent_gateway.context import Caller, Gateway, RequestId, Shared
from latent_gateway.envelope import json_answer

router = APIRouter(tags=["evaluation"])

DAYS: Final = 30
SHOWN: Final = 50
MAX_SHOWN: Final = 500


@router.get("/v1/containers/{container_id}/queries", response_model=QueryLogAnswer)
async def show(
    container_id: str,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    kind: QueryKind = QueryKind.FREQUENT,
    days: Annotated[int, Query(ge=1, le=MAX_LOG_DAYS)] = DAYS,
    limit: Annotated[int, Query(ge=1, le=MAX_SHOWN)] = SHOWN,
) -> Response:
    """Logged queries of a container: the most frequent ones, those without hits, or those with weak hits."""
    answer = await logged(shared, caller, container_id, kind, days=days, limit=limit)
    return json_answer(answer, request_id)


async def logged(
    shared: Gateway,
    caller: Principal,
    container_id: str,
    kind: QueryKind,
    *,
    days: int = DAYS,
    limit: int = SHOWN,
) -> QueryLogAnswer:
    """The list for an owner; empty while the queries are not logged."""
    async with shared.stack.db.reading() as conn:
        container = await access.owned(conn, caller, container_id)
        keep_days = container.manifest.query_log.keep_days
        found = None
        if keep_days is not None:
            found = await query_log.summary(
                conn, container.id, kind, days=min(days, keep_days), limit=limit
            )
    return QueryLogAnswer(
        container_id=container.id,
        keep_days=keep_days,
        logged=found.queries if found else 0,
        since=found.since if found else None,
        queries=found.lines if found else [],
    )


@router.delete("/v1/containers/{container_id}/queries", response_model=QueryLogCleared)
async def clear(
    container_id: str, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Delete the log of a container. New searches are logged as before."""
    answer = await cleared(shared, caller, container_id, request_id)
    return json_answer(answer, request_id)


async def cleared(
    shared: Gateway, caller: Principal, container_id: str, request_id: str
) -> QueryLogCleared:
    """The number of deleted entries."""
    async with shared.stack.db.transaction() as conn:
        container = await access.owned(conn, caller, container_id)
        deleted = await query_log.clear(conn, container.id)
        await audit.note(
            conn,
            principal=caller.name,
            action="container.clear_queries",
            container_id=container.id,
            object_=None,
            request_id=request_id,
        )
    return QueryLogCleared(deleted=deleted)
