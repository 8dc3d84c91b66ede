"""Rows of references: what a remote embedder returned for a text when its model was first used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from psycopg.rows import tuple_row

from latent_core.db.connection import Connection
from latent_core.domain.vector_types import Vector

FIND: Final = """
SELECT text, vector, max_tokens FROM embedder_references WHERE space = %(space)s
"""

INSERT: Final = """
INSERT INTO embedder_references (space, text, vector, max_tokens)
VALUES (%(space)s, %(text)s, %(vector)s, %(max_tokens)s)
ON CONFLICT (space) DO NOTHING
"""

FIX: Final = """
UPDATE embedder_references SET max_tokens = %(max_tokens)s WHERE space = %(space)s AND max_tokens IS NULL
"""


@dataclass(frozen=True, slots=True)
class EmbedderReference:
    text: str
    vector: Vector
    max_tokens: int | None = None
    """Texts are sent in parts of at most so many tokens; 0: whole; None: it is not decided yet."""


async def find(conn: Connection, space: str) -> EmbedderReference | None:
    """The reference of a space (``EmbeddingModel.key``)."""
    async with conn.cursor(row_factory=tuple_row, binary=True) as cursor:
        await cursor.execute(FIND, {"space": space})
        row = await cursor.fetchone()
    if row is None:
        return None
    text, vector, max_tokens = row
    return EmbedderReference(text, np.frombuffer(vector, "<f4"), max_tokens)


async def insert(conn: Connection, space: str, reference: EmbedderReference) -> None:
    """Store it; an existing one stays unchanged."""
    await conn.execute(
        INSERT,
        {
            "space": space,
            "text": reference.text,
            "vector": reference.vector.astype("<f4", copy=False).tobytes(),
            "max_tokens": reference.max_tokens,
        },
    )


async def fix_max_tokens(conn: Connection, space: str, max_tokens: int) -> None:
    """Decide it, unless another process did."""
    await conn.execute(FIX, {"space": space, "max_tokens": max_tokens})
