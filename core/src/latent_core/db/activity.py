"""How long transactions of the database stay open."""

from __future__ import annotations

from typing import Final

from latent_core.db.connection import Connection

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
