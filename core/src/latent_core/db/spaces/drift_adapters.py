"""Trained drift adapters with their lineage."""

from __future__ import annotations

from typing import Any, Final

import orjson

from latent_core.db.connection import Connection, only_row

INSERT_ADAPTER: Final = """
INSERT INTO drift_adapters (container_id, way, old_embedder, old_version, old_dims, new_embedder, new_version, new_dims,
                            pairs, adapter, measured)
VALUES (%(container_id)s, %(way)s, %(old_embedder)s, %(old_version)s, %(old_dims)s, %(new_embedder)s, %(new_version)s,
        %(new_dims)s, %(pairs)s, %(adapter)s, %(measured)s::jsonb)
RETURNING id
"""

ADAPTER: Final = "SELECT adapter FROM drift_adapters WHERE id = %(id)s"


async def insert(
    conn: Connection,
    container_id: str,
    *,
    way: str,
    old: Any,
    new: Any,
    pairs: int,
    adapter: bytes,
    measured: dict[str, Any],
) -> int:
    """Store a trained adapter with its lineage; it maps between the models ``old`` and ``new``."""
    values = {
        "container_id": container_id,
        "way": way,
        "old_embedder": old.embedder,
        "old_version": old.version,
        "old_dims": old.dims,
        "new_embedder": new.embedder,
        "new_version": new.version,
        "new_dims": new.dims,
        "pairs": pairs,
        "adapter": adapter,
        "measured": orjson.dumps(measured).decode(),
    }
    return int((await only_row(await conn.execute(INSERT_ADAPTER, values)))["id"])


async def read(conn: Connection, adapter_id: int) -> bytes | None:
    row = await (await conn.execute(ADAPTER, {"id": adapter_id}, binary=True)).fetchone()
    return bytes(row["adapter"]) if row else None
