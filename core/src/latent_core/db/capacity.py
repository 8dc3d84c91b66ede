"""Whether the stores accept writes, and the age of the oldest transaction. Space is checked before work is
accepted, so that no accepted job waits for it.

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

from latent_core.db.connection import Connection
from latent_core.domain.errors import LatentError, OutOfSpace, Service, StoreFull
from latent_core.settings import Settings

NOTE: Final = """
INSERT INTO stores_over_capacity (service, reported_at) VALUES (%(service)s, clock_timestamp())
ON CONFLICT (service) DO UPDATE SET reported_at = excluded.reported_at
"""
SINCE: Final = """
SELECT service, extract(epoch FROM clock_timestamp() - reported_at)::float AS seconds
FROM stores_over_capacity
WHERE reported_at > clock_timestamp() - make_interval(secs => %(seconds)s)
"""


async def note_full(conn: Connection, service: Service) -> None:
    """Record that ``service`` reports a full disk now."""
    await conn.execute(NOTE, {"service": service})


async def reported_within(conn: Connection, seconds: float) -> dict[Service, float]:
    """Stores with a report in the last ``seconds``, mapped to the age of the report in seconds."""
    rows = await (await conn.execute(SINCE, {"seconds": seconds})).fetchall()
    return {row["service"]: max(0.0, row["seconds"]) for row in rows}


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
        for service, ago in (await reported_within(conn, REMEMBERED_SECONDS)).items():
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


# A snapshot that stays open slows every claim and keeps vacuum from removing dead rows. Only of this database,
# and without this transaction.
OLDEST_TRANSACTION: Final = """
SELECT coalesce(extract(epoch FROM clock_timestamp() - min(xact_start)), 0)::float AS seconds
FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


async def oldest_transaction_seconds(conn: Connection) -> float:
    """How long the oldest open transaction lasts; 0 when there is none."""
    row = await (await conn.execute(OLDEST_TRANSACTION)).fetchone()
    return max(0.0, float(row["seconds"])) if row is not None else 0.0
