"""Health, readiness and metrics, for monitoring."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST

from latent_core.wire.doctor import HealthAnswer, ReadinessAnswer
from latent_gateway.auth import access
from latent_gateway.context import Caller, Shared

router = APIRouter(tags=["health"])


NOT_READY: Final[dict[int | str, dict[str, Any]]] = {
    503: {"description": "No search can be answered: Postgres is down", "model": ReadinessAnswer}
}
TEXT: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "Prometheus text",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
}


@router.get("/healthz")
async def healthz() -> HealthAnswer:
    """The process answers. Asks no backing service."""
    return HealthAnswer()


@router.get("/readyz", response_model=ReadinessAnswer, responses=NOT_READY)
async def readyz(shared: Shared) -> Response:
    """A search can be answered. ``degraded``: with less than everything, since a service is down or refuses writes."""
    ready, answer = await shared.stack.readiness.answer()
    return JSONResponse(answer.model_dump(), 200 if ready else 503)


@router.get("/metrics", response_class=Response, responses=TEXT)
async def metrics(shared: Shared, caller: Caller) -> Response:
    """Metrics of all containers in the Prometheus text format."""
    access.require_operator(caller)
    return Response(await shared.metrics_text(), media_type=CONTENT_TYPE_LATEST)
