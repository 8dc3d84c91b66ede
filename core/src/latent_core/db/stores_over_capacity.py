"""Stores that reported a full disk to a worker, shared with all gateways."""

from __future__ import annotations

from typing import Final

from latent_core.db.connection import Connection
from latent_core.domain.errors import Service

NOTE: Final = """
INSERT INTO stores_over_capacity (service, reported_at) VALUES (%(service)s, clock_timestamp())
ON CONFLICT (service) DO UPDATE SET reported_at = excluded.reported_at
"""
SINCE: Final = """
SELECT service, extract(epoch FROM clock_timestamp() - reported_at)::float AS seconds
FROM stores_over_capacity
WHERE reported_at > clock_timestamp() - make_interval(secs => %(seconds)s)
"""


async def note(conn: Connection, service: Service) -> None:
    """Record that ``service`` reports a full disk now."""
    await conn.execute(NOTE, {"service": service})


async def reported_within(conn: Connection, seconds: float) -> dict[Service, float]:
    """Stores with a report in the last ``seconds``, mapped to the age of the report in seconds."""
    rows = await (await conn.execute(SINCE, {"seconds": seconds})).fetchall()
    return {row["service"]: max(0.0, row["seconds"]) for row in rows}
