"""What a worker tells its metrics beside its jobs: that it still reaches its database."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from latent_core.db.connection import Database
from latent_core.domain.errors import LatentError
from latent_core.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

SEEN_SECONDS: Final = 10.0


async def keep_seen(db: Database, metrics: Metrics) -> None:
    """Note the time whenever the database answers; a worker that hangs or is cut off does not. Until cancelled."""
    while True:
        try:
            await db.ping()
            metrics.worker_seen.set_to_current_time()
        except LatentError as exc:
            logger.warning("database_unreachable", extra={"error": str(exc)})
        await asyncio.sleep(SEEN_SECONDS)
