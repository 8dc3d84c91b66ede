"""How much a token may ask for: requests a minute, bytes a day, jobs that wait; and how much may wait at all.

Requests are counted in memory, by each gateway for itself: a row a request would cost more than the request.
Bytes and jobs are counted in Postgres, for all gateways. The owner has no quota; the length of the queue and the
room on the disk bind everybody.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
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

SECONDS_PER_MINUTE: Final = 60.0
MAX_COUNTED: Final = 10_000
"""Tokens whose requests are counted; of more, the one longest silent begins anew."""
DEPTH_SECONDS: Final = 1.0
"""How old the count of the queue may be: at its limit it is not cheap."""
QUEUE_PAUSE_SECONDS: Final = 15
"""When to come back for a place in the queue."""


def identity(principal: Principal) -> str:
    """Who is counted: a token by itself, so that its holder's other tokens go on."""
    if principal.token_id is None:
        return principal.name
    return f"{principal.name}#{principal.token_id}"


@dataclass(slots=True)
class _RequestBucket:
    """Requests that may still come at once; it fills as time goes by."""

    left: float
    at: float


class Meter:
    """Bytes of one body as they come: no more of them than are left today."""

    def __init__(self, left: int | None, refusal: RateLimited) -> None:
        self.size = 0
        self._left = left
        self._refusal = refusal

    def took(self, size: int) -> None:
        """``RateLimited`` once there are more than that."""
        self.size += size
        if self._left is not None and self.size > self._left:
            raise self._refusal


class Quotas:
    """One a gateway. A limit of 0 is none."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = monotonic) -> None:
        self._requests = settings.quota_requests_per_min
        self._bytes = settings.quota_upload_bytes_per_day
        self._jobs = settings.quota_queued_jobs
        self._queue = settings.max_queued_jobs
        self._clock = clock
        self._buckets: OrderedDict[str, _RequestBucket] = OrderedDict()
        self._depth = 0
        self._counted_at: float | None = None

    def take_request(self, principal: Principal) -> None:
        """Count one; ``RateLimited`` says when the next may come."""
        if not self._requests or principal.is_owner:
            return
        who, now = identity(principal), self._clock()
        rate = self._requests / SECONDS_PER_MINUTE
        bucket = self._buckets.setdefault(who, _RequestBucket(self._requests, now))
        self._buckets.move_to_end(who)
        if len(self._buckets) > MAX_COUNTED:
            self._buckets.popitem(last=False)
        bucket.left = min(float(self._requests), bucket.left + (now - bucket.at) * rate)
        bucket.at = now
        if bucket.left < 1:
            raise RateLimited(
                f"your token may send {self._requests} requests a minute (LLC_QUOTA_REQUESTS_PER_MIN); wait, then go on",
                retry_after=max(1, ceil((1 - bucket.left) / rate)),
            )
        bucket.left -= 1

    async def bytes_left(self, conn: Connection, principal: Principal, declared: int) -> int | None:
        """What may still be uploaded today, None without a limit; ``RateLimited`` when ``declared`` is more."""
        if not self._bytes or principal.is_owner:
            return None
        left = self._bytes - await uploads.uploaded_today(conn, identity(principal))
        if left <= 0 or declared > left:
            raise self.out_of_bytes()
        return left

    async def count_upload(self, conn: Connection, principal: Principal, size: int) -> None:
        if self._bytes and not principal.is_owner:
            await uploads.count_upload(conn, identity(principal), size)

    @asynccontextmanager
    async def metered(
        self, db: Database, principal: Principal, left: int | None
    ) -> AsyncIterator[Meter]:
        """For one body while it is received: what came is counted, also when it was refused or broken off."""
        meter = Meter(left, self.out_of_bytes())
        try:
            yield meter
        finally:
            if meter.size and left is not None:
                async with db.transaction() as conn:
                    await self.count_upload(conn, principal, meter.size)

    def out_of_bytes(self) -> RateLimited:
        return RateLimited(
            f"your token may upload {self._bytes} bytes a day, UTC (LLC_QUOTA_UPLOAD_BYTES_PER_DAY); go on tomorrow",
            retry_after=_seconds_to_midnight(),
        )

    async def check_queue(self, conn: Connection, principal: Principal) -> None:
        """``RateLimited`` when the queue takes no more work, of anybody or of this principal."""
        if self._queue and await self._depth_now(conn) >= self._queue:
            raise RateLimited(
                f"{self._queue} jobs wait already, which is the most (LLC_MAX_QUEUED_JOBS); come back when some are done",
                retry_after=QUEUE_PAUSE_SECONDS,
            )
        if not self._jobs or principal.name == OWNER:
            return
        if await admin.queued_by(conn, principal.name, max_count=self._jobs) >= self._jobs:
            raise RateLimited(
                f"{self._jobs} of your jobs wait already, which is the most (LLC_QUOTA_QUEUED_JOBS); "
                "come back when some are done",
                retry_after=QUEUE_PAUSE_SECONDS,
            )

    async def _depth_now(self, conn: Connection) -> int:
        """Of the whole queue, at most a second old; what was admitted since is counted along."""
        now = self._clock()
        if self._counted_at is None or now - self._counted_at > DEPTH_SECONDS:
            self._counted_at = now  # before the wait: who comes meanwhile goes by the last count
            self._depth = await admin.queued(conn, max_count=self._queue)
        self._depth += 1
        return self._depth - 1


async def check_capacity(folder: Path, min_free: int, declared: int) -> None:
    """``OutOfSpace`` when ``declared`` bytes more would leave less than ``min_free`` on the disk of ``folder``."""
    if not min_free:
        return
    free = (await asyncio.to_thread(shutil.disk_usage, folder)).free
    if free - declared < min_free:
        raise OutOfSpace(
            "there is too little room in the data directory: an upload must leave LLC_MIN_FREE_BYTES free; "
            "make room, or lower that, then send it again"
        )


def _seconds_to_midnight() -> int:
    now = datetime.now(UTC)
    midnight = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return max(1, ceil((midnight - now).total_seconds()))
