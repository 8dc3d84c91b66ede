"""Metrics of the backing services, read from them on request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from latent_core.db import capacity
from latent_core.db.capacity import SERVICES
from latent_core.domain.errors import LatentError
from latent_core.domain.ids import Sha256
from latent_core.queue import admin
from latent_core.stack import Stack

logger = logging.getLogger(__name__)

PROBE_SECONDS: Final = 2.0
REFRESH_SECONDS: Final = 15.0
EMPTY_SHA: Final = Sha256("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
"""Of no bytes: a request for its size reaches the store and reads nothing."""


class Gauges:
    """Reads the state of a stack's services. Concurrent requests share one read."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._look: asyncio.Task[dict[str, bool]] | None = None

    async def services(self) -> dict[str, bool]:
        """Which backing service answers, by the contract's names. Also updates the metrics."""
        look = self._look
        if look is None or look.done():
            look = self._look = asyncio.create_task(self._looked(), name="service-probes")
        # A caller that disconnects does not cancel it for the others.
        return await asyncio.shield(look)

    async def refresh(self) -> None:
        """Update the gauges; a gauge that cannot be read keeps its value."""
        up = await self.services()
        if up["postgres"]:
            for name, gauge in (
                ("queue", self._queue),
                ("oldest_transaction", self._oldest),
                ("full", self._capacity),
            ):
                await _guarded(name, gauge)
        full = self._stack.capacity.known_full()
        for service in SERVICES:
            self._stack.metrics.service_full.labels(service).set(service in full)

    async def keep_fresh(self) -> None:
        """For metrics that are fetched from LLC_METRICS_PORT, without a request to the gateway; until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(REFRESH_SECONDS)

    async def _looked(self) -> dict[str, bool]:
        stack = self._stack
        probes: dict[str, Callable[[], Awaitable[object]]] = {
            "postgres": stack.db.ping,
            "qdrant": stack.vectors.collections,
            "minio": lambda: stack.blobs.size(EMPTY_SHA),
        }
        states = await asyncio.gather(*(_probe(name, probe) for name, probe in probes.items()))
        up = dict(zip(probes, states, strict=True))
        for name, answers in up.items():
            stack.metrics.service_up.labels(name).set(answers)
        stack.metrics.postgres_read_only.set(stack.db.read_only)
        return up

    async def _queue(self) -> None:
        async with self._stack.db.reading() as conn:
            depth = await admin.depth(conn)
        self._stack.metrics.set_queue(depth.jobs, depth.oldest_queued_seconds)

    async def _capacity(self) -> None:
        async with self._stack.db.reading() as conn:
            await self._stack.capacity.look(conn)

    async def _oldest(self) -> None:
        async with self._stack.db.reading() as conn:
            oldest = await capacity.oldest_transaction_seconds(conn)
        self._stack.metrics.oldest_transaction.set(oldest)


async def _guarded(name: str, gauge: Callable[[], Awaitable[None]]) -> None:
    """An error of one gauge leaves the page and the other gauges unchanged."""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            await gauge()
    except (LatentError, TimeoutError) as exc:
        logger.warning("gauge_not_read", extra={"gauge": name, "cause": str(exc) or "too slow"})
    except Exception:
        logger.exception("gauge_failed", extra={"gauge": name})


async def _probe(service: str, probe: Callable[[], Awaitable[object]]) -> bool:
    """Callers need no token, so the log has the cause, not the answer."""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            await probe()
    except TimeoutError:
        cause = f"no answer within {PROBE_SECONDS:g} s"
    except LatentError as exc:
        cause = exc.message
    except Exception as exc:  # unexpected: the service counts as down
        logger.exception("probe_failed", extra={"service": service})
        cause = type(exc).__name__
    else:
        return True
    logger.warning("service_down", extra={"service": service, "cause": cause})
    return False
