"""Advisory locks of a session, on a connection that ends with them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from latent_core.db.connection import Connection


async def release(conn: Connection, unlock: str, values: Mapping[str, Any] | None = None) -> None:
    """Execute ``unlock``, if the connection still can. The lock ends with the connection, too, but Postgres may notice its
    end only after the next run has asked for the lock."""
    if conn.pgconn.transaction_status == TransactionStatus.IDLE:
        with suppress(psycopg.Error):  # lost, and the lock with it
            await conn.execute(unlock, values)
