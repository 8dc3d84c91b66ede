"""Rows of the embedding cache: the same input is embedded only once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from psycopg.rows import tuple_row

from latent_core.db.connection import Connection
from latent_core.domain.ids import Sha256
from latent_core.domain.vector_types import Matrix, Vector

FIND: Final = """
SELECT content_hash, vector, used_at < now() - interval '1 day' AS stale
FROM embedding_cache
WHERE space = %(space)s AND content_hash = ANY(%(hashes)s)
"""

# One update per day is enough to know which rows are in use. Rows that another job has locked are skipped,
# so that two jobs never wait for each other.
TOUCH: Final = """
UPDATE embedding_cache SET used_at = now()
WHERE (content_hash, space) IN (
    SELECT content_hash, space FROM embedding_cache
    WHERE space = %(space)s AND content_hash = ANY(%(hashes)s)
    FOR UPDATE SKIP LOCKED)
"""

INSERT: Final = """
INSERT INTO embedding_cache (content_hash, space, vector)
SELECT hash, %(space)s, vector
FROM unnest(%(hashes)s::text[], %(vectors)b::bytea[]) AS new (hash, vector)
ON CONFLICT (content_hash, space) DO NOTHING
"""


async def find(conn: Connection, space: str, hashes: Sequence[Sha256]) -> dict[Sha256, Vector]:
    """The vectors of those ``hashes`` that are kept for ``space`` (``EmbeddingModel.key``)."""
    values = {"space": space, "hashes": list(hashes)}
    async with conn.cursor(row_factory=tuple_row, binary=True) as cursor:
        await cursor.execute(FIND, values)
        rows = await cursor.fetchall()
    stale = [hash_ for hash_, _, old in rows if old]
    if stale:
        await conn.execute(TOUCH, {"space": space, "hashes": stale})
    return {hash_: np.frombuffer(vector, "<f4") for hash_, vector, _ in rows}


async def insert(conn: Connection, space: str, hashes: Sequence[Sha256], vectors: Matrix) -> None:
    """Store ``vectors``, one row per hash; existing rows stay unchanged."""
    # Always in the same order, so that two jobs with the same texts never deadlock.
    order = sorted(range(len(hashes)), key=hashes.__getitem__)
    little = vectors.astype("<f4", copy=False)
    await conn.execute(
        INSERT,
        {
            "space": space,
            "hashes": [hashes[index] for index in order],
            "vectors": [little[index].tobytes() for index in order],
        },
    )
