"""Quotas of a token (requests per minute, bytes per day, queued jobs) and limits of the queue and the disk.

Requests are counted in memory that the processes of one gateway share: a row per request would cost more than the
request. Bytes and jobs are counted in Postgres, for all gateways. The owner has no quota. The limits of the queue and the disk apply to
everyone.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from math import ceil
from pathlib import Path
from time import monotonic
from typing import Final

from latent_core.db import uploads
from latent_core.db.connection import Connection, Database
from latent_core.domain.errors import OutOfSpace, RateLimited
from latent_core.queue import admin
from latent_core.settings import Settings
from latent_gateway.auth.principal import OWNER, Principal
from latent_gateway.auth.shared_memory import DecayingCounts, SharedMemory

SECONDS_PER_MINUTE: Final = 60.0
MAX_COUNTED: Final = 10_000
"""Tokens with counted requests. Above this number, the one that was idle longest is forgotten."""
DEPTH_SECONDS: Final = 1.0
"""Maximum age of the queue's count, in seconds: counting a full queue is slow."""
QUEUE_PAUSE_SECONDS: Final = 15
"""``Retry-After`` when the queue is full."""


def identity(principal: Principal) -> str:
    """The identity that is counted: the token, so that other tokens of the same principal are not affected."""
    if principal.token_id is None:
        return principal.name
    return f"{principal.name}#{principal.token_id}"


class Meter:
    """Counts the bytes of one body, up to those left today."""

    def __init__(self, left: int | None, refusal: RateLimited) -> None:
        self.size = 0
        self._left = left
        self._refusal = refusal

    def took(self, size: int) -> None:
        """Raises ``RateLimited`` above the limit."""
        self.size += size
        if self._left is not None and self.size > self._left:
            raise self._refusal


class Quotas:
    """One per gateway. A limit of 0 means no limit."""

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float] = monotonic,
        memory: SharedMemory | None = None,
    ) -> None:
        self._requests = settings.quota_requests_per_min
        self._bytes = settings.quota_upload_bytes_per_day
        self._notes = settings.quota_notes_per_day
        self._jobs = settings.quota_queued_jobs
        self._queue = settings.max_queued_jobs
        self._clock = clock
        self._counts = DecayingCounts(memory or SharedMemory(), MAX_COUNTED)
        self._depth = 0
        self._counted_at: float | None = None

    def take_request(self, principal: Principal) -> None:
        """Count a request; ``RateLimited`` says when the next is allowed."""
        if not self._requests or principal.is_owner:
            return
        rate = self._requests / SECONDS_PER_MINUTE
        over = self._counts.take(
            identity(principal), self._clock(), limit=self._requests, per_second=rate
        )
        if over:
            raise RateLimited(
                f"your token may send {self._requests} requests per minute (LLC_QUOTA_REQUESTS_PER_MIN); wait, then go on",
                retry_after=max(1, ceil(over / rate)),
            )

    async def bytes_left(self, conn: Connection, principal: Principal, declared: int) -> int | None:
        """Bytes that may still be uploaded today, None without a limit; ``RateLimited`` if ``declared`` is more."""
        if not self._bytes or principal.is_owner:
            return None
        left = self._bytes - await uploads.uploaded_today(conn, identity(principal))
        if left <= 0 or declared > left:
            raise self.out_of_bytes()
        return left

    async def take_note(self, conn: Connection, principal: Principal, size: int) -> None:
        """Count a note of ``size`` bytes in the transaction that accepts it; ``RateLimited``, which undoes both, if it is
        one too many today."""
        if principal.is_owner:
            return
        count = await uploads.count_note(conn, identity(principal), size)
        if self._notes and count > self._notes:
            raise RateLimited(
                f"your token has added {self._notes} notes today, UTC, which is the limit (LLC_QUOTA_NOTES_PER_DAY): "
                "continue tomorrow",
                retry_after=_seconds_to_midnight(),
            )

    async def count_upload(self, conn: Connection, principal: Principal, size: int) -> None:
        if self._bytes and not principal.is_owner:
            await uploads.count_upload(conn, identity(principal), size)

    @asynccontextmanager
    async def metered(
        self, db: Database, principal: Principal, left: int | None
    ) -> AsyncIterator[Meter]:
        """For one body while it is received: its bytes count even if it is refused or interrupted."""
        meter = Meter(left, self.out_of_bytes())
        try:
            yield meter
        finally:
            if meter.size and left is not None:
                async with db.transaction() as conn:
                    await self.count_upload(conn, principal, meter.size)

    def out_of_bytes(self) -> RateLimited:
        return RateLimited(
            f"your token may upload {self._bytes} bytes per day, UTC (LLC_QUOTA_UPLOAD_BYTES_PER_DAY): continue tomorrow",
            retry_after=_seconds_to_midnight(),
        )

    async def check_queue(self, conn: Connection, principal: Principal) -> None:
        """``RateLimited`` if the queue is full, in total or for this principal."""
        if self._queue and await self._depth_now(conn) >= self._queue:
            raise RateLimited(
                f"{self._queue} jobs are queued, which is the limit (LLC_MAX_QUEUED_JOBS): try again when some have ended",
                retry_after=QUEUE_PAUSE_SECONDS,
            )
        if not self._jobs or principal.name == OWNER:
            return
        if await admin.queued_by(conn, principal.name, max_count=self._jobs) >= self._jobs:
            raise RateLimited(
                f"{self._jobs} of your jobs are queued, which is the limit (LLC_QUOTA_QUEUED_JOBS): "
                "try again when some have ended",
                retry_after=QUEUE_PAUSE_SECONDS,
            )

    async def _depth_now(self, conn: Connection) -> int:
        """The length of the whole queue, at most a second old, plus the jobs admitted since."""
        now = self._clock()
        if self._counted_at is None or now - self._counted_at > DEPTH_SECONDS:
            self._counted_at = now  # set before the await: concurrent callers use the last count
            self._depth = await admin.queued(conn, max_count=self._queue)
        self._depth += 1
        return self._depth - 1


async def check_capacity(folder: Path, min_free: int, declared: int) -> None:
    """``OutOfSpace`` if ``declared`` more bytes would leave less than ``min_free`` on the disk of ``folder``."""
    if not min_free:
        return
    free = (await asyncio.to_thread(shutil.disk_usage, folder)).free
    if free - declared < min_free:
        raise OutOfSpace(
            "the data directory has too little free space: an upload must leave LLC_MIN_FREE_BYTES free. "
            "Free space or lower that setting, then send it again"
        )


def _seconds_to_midnight() -> int:
    now = datetime.now(UTC)
    midnight = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return max(1, ceil((midnight - now).total_seconds()))
