"""Health, readiness, metrics: for machines that watch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Final

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from latent_core.domain.errors import LatentError
from latent_core.domain.ids import Sha256
from latent_core.queue import admin
from latent_gateway.context import Caller, Gateway, Shared

router = APIRouter(tags=["health"])
logger = logging.getLogger(__name__)

PROBE_SECONDS: Final = 2.0
EMPTY_SHA: Final = Sha256("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
"""Of no bytes at all: asking for its size touches the store and nothing else."""


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/readyz")
async def readyz(shared: Shared) -> Response:
    """Every backing service answers."""
    probes: dict[str, Awaitable[object]] = {
        "postgres": shared.stack.db.ping(),
        "qdrant": shared.stack.vectors.collections(),
        "minio": shared.stack.blobs.size(EMPTY_SHA),
    }
    states = await asyncio.gather(*(_probe(name, p) for name, p in probes.items()))
    services = dict(zip(probes, states, strict=True))
    ready = all(state == "ok" for state in states)
    return JSONResponse(
        {"status": "ok" if ready else "degraded", "services": services}, 200 if ready else 503
    )


async def _probe(service: str, probe: Awaitable[object]) -> str:
    """Anybody may ask: why a service is down stands in the log."""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            await probe
    except TimeoutError:
        cause = f"no answer within {PROBE_SECONDS:g} s"
    except LatentError as exc:
        cause = exc.message
    else:
        return "ok"
    logger.warning("service_down", extra={"service": service, "cause": cause})
    return "down"


@router.get("/metrics")
async def metrics(shared: Shared, _caller: Caller) -> Response:
    """Prometheus text."""
    await _refresh(shared)
    return Response(generate_latest(shared.stack.metrics.registry), media_type=CONTENT_TYPE_LATEST)


async def _refresh(shared: Gateway) -> None:
    """Gauges that are read, not counted."""
    async with shared.stack.db.transaction() as conn:
        depth = await admin.depth(conn)
    shared.stack.metrics.set_queue(depth.jobs, depth.oldest_queued_seconds)
