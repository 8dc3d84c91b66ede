"""Stores that said they are full, as workers met it, for all gateways to know."""

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
    """``service`` says so now."""
    await conn.execute(NOTE, {"service": service})


async def reported_within(conn: Connection, seconds: float) -> dict[Service, float]:
    """Those that said so within the last ``seconds``, and how many ago."""
    rows = await (await conn.execute(SINCE, {"seconds": seconds})).fetchall()
    return {row["service"]: max(0.0, row["seconds"]) for row in rows}
