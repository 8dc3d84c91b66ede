"""Metrics of the backing services, read from them on request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from prometheus_client import generate_latest

from latent_core.db import capacity, placement, schedules
from latent_core.domain.errors import LatentError
from latent_core.queue import admin
from latent_core.readiness import PROBE_SECONDS
from latent_core.stack import Stack

logger = logging.getLogger(__name__)

REFRESH_SECONDS: Final = 15.0


class Gauges:
    """Reads the queue, the database and the backups of a stack into its metrics."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack

    async def refresh(self) -> None:
        """Update the gauges; a gauge that cannot be read keeps its value."""
        states = await self._stack.readiness.states()
        if states["postgres"] != "down":
            for name, gauge in (
                ("queue", self._queue),
                ("oldest_transaction", self._oldest),
                ("collections", self._collections),
                ("backups", self._backups),
            ):
                await _guarded(name, gauge)

    async def text(self) -> bytes:
        """The answer of ``/metrics``, with gauges that are read now."""
        await self.refresh()
        return generate_latest(self._stack.metrics.registry)

    async def keep_fresh(self) -> None:
        """For metrics that are fetched from LLC_METRICS_PORT, without a request to the gateway; until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(REFRESH_SECONDS)

    async def _queue(self) -> None:
        async with self._stack.db.reading() as conn:
            depth = await admin.depth(conn)
        self._stack.metrics.set_queue(depth.jobs, depth.oldest_queued_seconds)

    async def _collections(self) -> None:
        async with self._stack.db.reading() as conn:
            usage = await placement.usage(conn)
        self._stack.metrics.vector_collections.labels("own").set(usage.own)
        self._stack.metrics.vector_collections.labels("shared").set(usage.shared)
        self._stack.metrics.vector_collections_bound.set(usage.bound or 0)

    async def _oldest(self) -> None:
        async with self._stack.db.reading() as conn:
            oldest = await capacity.oldest_transaction_seconds(conn)
        self._stack.metrics.oldest_transaction.set(oldest)

    async def _backups(self) -> None:
        async with self._stack.db.reading() as conn:
            backups = await schedules.backups(conn)
        metrics = self._stack.metrics
        metrics.backup_schedules.set(backups.scheduled)
        metrics.backups_failed.set(backups.failed)
        metrics.backup_overdue.set(backups.overdue_seconds)
        metrics.backup_last_success.set(backups.oldest_success)


async def _guarded(name: str, gauge: Callable[[], Awaitable[None]]) -> None:
    """An error of one gauge leaves the page and the other gauges unchanged."""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            await gauge()
    except (LatentError, TimeoutError) as exc:
        logger.warning("gauge_not_read", extra={"gauge": name, "cause": str(exc) or "too slow"})
    except Exception:
        logger.exception("gauge_failed", extra={"gauge": name})
