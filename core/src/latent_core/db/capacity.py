"""Whether the stores have free space. Checked before work is accepted, so that no accepted job has to wait for space.

A store on this machine is measured. The free space of a server is not known: after it reported a full disk, no work
is accepted for a minute. The next write then shows whether it is still full. Searches and deletions still work.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping
from math import ceil
from pathlib import Path
from time import monotonic
from typing import Final, Self, get_args

from latent_core.db import stores_over_capacity
from latent_core.db.connection import Connection
from latent_core.domain.errors import LatentError, OutOfSpace, Service, StoreFull
from latent_core.settings import Settings

REMEMBERED_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 2.0
"""Maximum age of the workers' reports and of the measured free space."""
SERVICES: Final[tuple[Service, ...]] = get_args(Service)
_CALLED: Final[Mapping[Service, str]] = {
    "postgres": "Postgres",
    "qdrant": "Qdrant",
    "minio": "the S3 server",
}


class CapacityGuard:
    """One per process. ``folder`` is on the disk of the local stores, where ``min_free`` bytes stay free."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        min_free: int = 0,
        servers: frozenset[Service] = frozenset(),
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._folder = folder
        self._min_free = min_free
        self._servers = servers
        self._clock = clock
        self._reported_at: dict[Service, float] = {}
        self._looked_at: float | None = None
        self._short = False

    @classmethod
    def of(cls, settings: Settings, folder: Path) -> Self:
        addresses: dict[Service, object] = {
            "postgres": settings.postgres_dsn,
            "qdrant": settings.qdrant_url,
            "minio": settings.s3_endpoint,
        }
        servers = frozenset(name for name, address in addresses.items() if address is not None)
        return cls(folder, min_free=settings.min_free_bytes, servers=servers)

    def heard(self, error: LatentError) -> None:
        """Remember a server that reports a full disk; other errors are ignored."""
        if isinstance(error, StoreFull) and error.service in self._servers:
            self._reported_at[error.service] = self._clock()

    def known_full(self) -> frozenset[Service]:
        """The full stores, by the last check."""
        servers = {name for name in self._reported_at if self._seconds_left(name) > 0}
        return frozenset(servers | (set(self._embedded) if self._short else set()))

    async def look(self, conn: Connection) -> None:
        """Read the workers' reports and the free space of this disk, unless that was done just before."""
        now = self._clock()
        if self._looked_at is not None and now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now  # before the wait: concurrent callers use the last result
        for service, ago in (
            await stores_over_capacity.reported_within(conn, REMEMBERED_SECONDS)
        ).items():
            if service in self._servers:
                self._reported_at[service] = max(
                    now - ago, self._reported_at.get(service, now - ago)
                )
        self._short = await self._is_short()

    async def check(self, conn: Connection) -> None:
        """Raise ``OutOfSpace`` when writes must wait; the error says what to do and when to retry."""
        await self.look(conn)
        full = self.known_full()
        service = min(full & self._servers, default=None)
        if service is not None:
            left = self._seconds_left(service)
            raise OutOfSpace(
                f"{_CALLED[service]} reported a full disk {REMEMBERED_SECONDS - left:.0f} s ago, so writes are refused for a minute. "
                "Free disk space on that server, then retry. Searching and deleting still work",
                service=service,
                retry_after=max(1, ceil(left)),
            )
        if full:
            raise OutOfSpace(
                "too little free disk space in the data directory: less than LLC_MIN_FREE_BYTES. Free disk space, or lower "
                "that setting, then retry. Searching and deleting still work",
                retry_after=ceil(REMEMBERED_SECONDS),
            )

    @property
    def _embedded(self) -> list[Service]:
        return [service for service in SERVICES if service not in self._servers]

    def _seconds_left(self, service: Service) -> float:
        return self._reported_at[service] + REMEMBERED_SECONDS - self._clock()

    async def _is_short(self) -> bool:
        if self._folder is None or not self._min_free or not self._embedded:
            return False
        return (await asyncio.to_thread(shutil.disk_usage, self._folder)).free < self._min_free
