"""Which chunks contain a word of the query, without their scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from psycopg.rows import tuple_row

from latent_core.bm25.packing import unpack_chunk_nos
from latent_core.db.connection import Connection

CHUNKS_WITH_TERMS: Final = """
SELECT chunk_nos FROM postings WHERE container_id = %(container_id)s AND term = ANY(%(terms)s)
UNION ALL
SELECT chunk_nos FROM unmerged_postings WHERE container_id = %(container_id)s AND term = ANY(%(terms)s)
"""


async def chunks_with_terms(
    conn: Connection, container_id: str, terms: Sequence[str]
) -> NDArray[np.int64]:
    """The chunks with at least one of ``terms``, in order; dead ones may be among them."""
    values = {"container_id": container_id, "terms": list(dict.fromkeys(terms))}
    async with conn.cursor(row_factory=tuple_row, binary=True) as cursor:
        await cursor.execute(CHUNKS_WITH_TERMS, values)
        packed = [chunk_nos for (chunk_nos,) in await cursor.fetchall()]
    return np.unique(unpack_chunk_nos(packed)).astype(np.int64)
