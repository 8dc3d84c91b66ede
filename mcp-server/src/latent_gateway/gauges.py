"""What the metrics tell of the backing services: asked for, not counted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Final

from latent_core.domain.errors import LatentError
from latent_core.domain.ids import Sha256
from latent_core.queue import admin
from latent_core.registry import activity
from latent_core.stack import Stack

logger = logging.getLogger(__name__)

PROBE_SECONDS: Final = 2.0
REFRESH_SECONDS: Final = 15.0
EMPTY_SHA: Final = Sha256("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
"""Of no bytes at all: asking for its size touches the store and nothing else."""


async def services(stack: Stack) -> dict[str, bool]:
    """Which backing service answers, under the contract's names; the metrics are told."""
    probes: dict[str, Awaitable[object]] = {
        "postgres": stack.db.ping(),
        "qdrant": stack.vectors.collections(),
        "minio": stack.blobs.size(EMPTY_SHA),
    }
    states = await asyncio.gather(*(_probe(name, probe) for name, probe in probes.items()))
    up = dict(zip(probes, states, strict=True))
    for name, answers in up.items():
        stack.metrics.service_up.labels(name).set(answers)
    return up


async def refresh(stack: Stack) -> None:
    """Bring the gauges up to date; those that cannot be had keep their value."""
    up = await services(stack)
    if not up["postgres"]:
        return
    try:
        async with asyncio.timeout(PROBE_SECONDS), stack.db.reading() as conn:
            depth = await admin.depth(conn)
            oldest = await activity.oldest_transaction_seconds(conn)
    except (LatentError, TimeoutError) as exc:
        logger.warning("gauges_not_read", extra={"cause": str(exc)})
        return
    stack.metrics.set_queue(depth.jobs, depth.oldest_queued_seconds)
    stack.metrics.oldest_transaction.set(oldest)


async def keep_fresh(stack: Stack) -> None:
    """For metrics that are fetched without asking us (LLC_METRICS_PORT); until cancelled."""
    while True:
        await refresh(stack)
        await asyncio.sleep(REFRESH_SECONDS)


async def _probe(service: str, probe: Awaitable[object]) -> bool:
    """Anybody may ask: why a service is down stands in the log."""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            await probe
    except TimeoutError:
        cause = f"no answer within {PROBE_SECONDS:g} s"
    except LatentError as exc:
        cause = exc.message
    else:
        return True
    logger.warning("service_down", extra={"service": service, "cause": cause})
    return False
