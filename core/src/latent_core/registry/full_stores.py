"""Stores that said they are full, as workers met it, for all gateways to know."""

from __future__ import annotations

from typing import Final

from latent_core.domain.errors import Service
from latent_core.registry.connection import Connection

NOTE: Final = """
INSERT INTO full_stores (service, said_at) VALUES (%(service)s, clock_timestamp())
ON CONFLICT (service) DO UPDATE SET said_at = excluded.said_at
"""
SINCE: Final = """
SELECT service, extract(epoch FROM clock_timestamp() - said_at)::float AS seconds
FROM full_stores
WHERE said_at > clock_timestamp() - make_interval(secs => %(seconds)s)
"""


async def note(conn: Connection, service: Service) -> None:
    """``service`` says so now."""
    await conn.execute(NOTE, {"service": service})


async def said_within(conn: Connection, seconds: float) -> dict[Service, float]:
    """Those that said so within the last ``seconds``, and how many ago."""
    rows = await (await conn.execute(SINCE, {"seconds": seconds})).fetchall()
    return {row["service"]: max(0.0, row["seconds"]) for row in rows}
