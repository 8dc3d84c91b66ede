"""Health, readiness and metrics, for monitoring."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from latent_core.wire.doctor import HealthAnswer, ReadinessAnswer
from latent_gateway.auth import access
from latent_gateway.context import Caller, Shared

router = APIRouter(tags=["health"])

READ_ONLY: Final = "read-only"
"""Searches are answered, and nothing can be stored."""


DEGRADED: Final[dict[int | str, dict[str, Any]]] = {
    503: {"description": "A backing service does not answer", "model": ReadinessAnswer}
}
TEXT: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "Prometheus text",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
}


@router.get("/healthz")
async def healthz() -> HealthAnswer:
    """The process answers."""
    return HealthAnswer()


@router.get("/readyz", response_model=ReadinessAnswer, responses=DEGRADED)
async def readyz(shared: Shared) -> Response:
    """Every backing service answers."""
    up = await shared.gauges.services()
    ready = all(up.values())
    states = {name: "ok" if answers else "down" for name, answers in up.items()}
    if up["postgres"] and shared.stack.db.read_only:
        states["postgres"] = READ_ONLY
    whole = all(state == "ok" for state in states.values())
    return JSONResponse(
        {"status": "ok" if whole else "degraded", "services": states}, 200 if ready else 503
    )


@router.get("/metrics", response_class=Response, responses=TEXT)
async def metrics(shared: Shared, caller: Caller) -> Response:
    """Metrics of all containers in the Prometheus text format."""
    access.require_operator(caller)
    await shared.gauges.refresh()
    return Response(generate_latest(shared.stack.metrics.registry), media_type=CONTENT_TYPE_LATEST)
