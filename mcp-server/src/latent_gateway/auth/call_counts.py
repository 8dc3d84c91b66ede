"""Counts the calls of tokens in memory, and adds them to the database every few seconds: a row per call would cost more
than the call. Calls that were not added when a gateway is killed are lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from latent_core.db import token_calls
from latent_core.db.connection import Database
from latent_core.db.token_calls import CallCount, CallKey
from latent_core.domain.errors import LatentError
from latent_core.domain.token import Api
from latent_gateway.auth.principal import Principal

logger = logging.getLogger(__name__)

FLUSH_SECONDS: Final = 10.0
WRITE_SECONDS: Final = 5.0
"""The deadline of one write."""
MAX_COUNTS: Final = 20_000
"""Counts in memory, while the database does not accept them. Further ones are not begun."""


class CallCounts:
    """One per gateway."""

    def __init__(
        self, db: Database, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._db = db
        self._now = now
        self._counts: dict[CallKey, CallCount] = {}
        self._writing = asyncio.Lock()

    def count(self, caller: Principal, api: Api, operation: str, *, failed: bool = False) -> None:
        """Count a call. ``operation`` comes from our own lists, never from the caller. The owner's own token has no row
        to count for."""
        if caller.token_id is None:
            return
        key = CallKey(caller.token_id, self._now().date(), api, operation)
        self._add(key, CallCount(1, int(failed)))

    def _add(self, key: CallKey, more: CallCount) -> None:
        found = self._counts.get(key)
        if found is None:
            if len(self._counts) < MAX_COUNTS:
                self._counts[key] = more
            return
        found.calls += more.calls
        found.failures += more.failures

    async def flush(self) -> None:
        """Add the counts to the database; they stay for the next time if it does not accept them."""
        async with self._writing:
            counts, self._counts = self._counts, {}
            if not counts:
                return
            try:
                async with asyncio.timeout(WRITE_SECONDS), self._db.single() as conn:
                    await token_calls.add(conn, counts)
            except (LatentError, TimeoutError) as exc:
                logger.warning("call_counts_not_written", extra={"cause": str(exc) or "too slow"})
                self._take_back(counts)
            except BaseException:
                self._take_back(counts)
                raise

    def _take_back(self, counts: dict[CallKey, CallCount]) -> None:
        for key, count in counts.items():
            self._add(key, count)

    async def keep_flushed(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            try:
                await self.flush()
            except Exception:  # the outermost frame of a task: the next round tries again
                logger.exception("call_counts_failed")
