"""What a worker tells its metrics: how attempts at jobs end, and that it still reaches its database."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from latent_core.domain.errors import LatentError
from latent_core.observability import Metrics
from latent_core.queue.runner import Ended
from latent_core.registry.connection import Database

logger = logging.getLogger(__name__)

SEEN_SECONDS: Final = 10.0


def counting(metrics: Metrics) -> Callable[[Ended], None]:
    """Counts each attempt, its seconds and its error."""

    def told(ended: Ended) -> None:
        kind = ended.job.kind.value
        metrics.jobs.labels(kind, ended.outcome).inc()
        metrics.job_seconds.labels(kind).observe(ended.seconds)
        if ended.code is not None:
            metrics.failed("job", ended.code)

    return told


async def keep_seen(db: Database, metrics: Metrics) -> None:
    """Note the time whenever the database answers; a worker that hangs or is cut off does not. Until cancelled."""
    while True:
        try:
            await db.ping()
            metrics.worker_seen.set_to_current_time()
        except LatentError as exc:
            logger.warning("the database does not answer: %s", exc)
        await asyncio.sleep(SEEN_SECONDS)
