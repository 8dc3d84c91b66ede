"""Rows of near-duplicates: which chunk repeats which earlier one, and which chunks are pending.

An original repeats nothing; a duplicate names its original by chunk_no. Only one job per container writes here; a
publication or deletion only records the chunk_nos that it added or removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from psycopg.rows import tuple_row

from latent_core.db.connection import Connection
from latent_core.domain.generated import FIRST_POSITION

SIGNATURE_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class PendingRange:
    """Consecutive chunk_nos that are still pending."""

    id: int
    first: int
    last: int


LEAVE: Final = """
INSERT INTO dedup_pending (container_id, first_chunk_no, last_chunk_no)
SELECT %(container_id)s, r.first_chunk_no, r.last_chunk_no
FROM unnest(%(firsts)s::bigint[], %(lasts)s::bigint[]) AS r (first_chunk_no, last_chunk_no)
"""

LEAVE_ALL: Final = """
INSERT INTO dedup_pending (container_id, first_chunk_no, last_chunk_no)
SELECT container_id, 0, next_chunk_no - 1 FROM chunk_no_counters WHERE container_id = %(container_id)s AND next_chunk_no > 0
"""

PENDING: Final = """
SELECT id, first_chunk_no, last_chunk_no FROM dedup_pending
WHERE container_id = %(container_id)s
ORDER BY first_chunk_no, id
LIMIT %(limit)s
"""

SETTLE: Final = "DELETE FROM dedup_pending WHERE id = ANY(%(ids)s::bigint[])"

SHORTEN: Final = "UPDATE dedup_pending SET first_chunk_no = %(first)s WHERE id = %(id)s"

WAITING: Final = "SELECT 1 FROM dedup_pending WHERE container_id = %(container_id)s LIMIT 1"

WITH_BACKLOG: Final = "SELECT DISTINCT container_id FROM dedup_pending ORDER BY container_id"

RELEASE: Final = """
UPDATE duplicates SET original = NULL
WHERE container_id = %(container_id)s AND original = ANY(%(originals)s::bigint[])
RETURNING chunk_no
"""

DROP_DEAD: Final = """
DELETE FROM duplicates l
WHERE l.container_id = %(container_id)s AND l.chunk_no = ANY(%(chunk_nos)s::bigint[])
  AND NOT EXISTS (SELECT 1 FROM chunks c JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
                  WHERE c.container_id = l.container_id AND c.chunk_no = l.chunk_no AND d.deleted_at IS NULL)
"""

# Not what a model wrote about the document: an original must never be hidden behind a text about it.
SUBJECTS: Final = f"""
SELECT c.chunk_no, c.id, c.generation, coalesce(n.windows, c.windows) AS windows, c.content_hash, c.block_type,
       c.meta ->> 'symbol' AS symbol, l.original
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
LEFT JOIN point_counts n ON n.container_id = c.container_id AND n.chunk_no = c.chunk_no AND n.collection_id = %(collection_id)s
LEFT JOIN duplicates l ON l.container_id = c.container_id AND l.chunk_no = c.chunk_no
WHERE c.container_id = %(container_id)s AND c.chunk_no = ANY(%(chunk_nos)s::bigint[]) AND d.deleted_at IS NULL
  AND c.modality = 'text' AND c.position < {FIRST_POSITION}
ORDER BY c.chunk_no
"""

# One value instead of one row per chunk: 48 bytes each, split by numpy.
SIGNATURES: Final = """
SELECT string_agg(int8send(chunk_no) || int8send(coalesce(original, -1)) || signature, ''::bytea) AS packed
FROM duplicates WHERE container_id = %(container_id)s
"""

KEEP: Final = """
INSERT INTO duplicates (container_id, chunk_no, signature, original)
SELECT %(container_id)s, r.chunk_no, r.signature, r.original
FROM unnest(%(chunk_nos)s::bigint[], %(signatures)s::bytea[], %(originals)s::bigint[]) AS r (chunk_no, signature, original)
ON CONFLICT (container_id, chunk_no) DO UPDATE SET signature = excluded.signature, original = excluded.original
"""

REPEAT: Final = """
UPDATE duplicates l SET original = r.original
FROM unnest(%(chunk_nos)s::bigint[], %(originals)s::bigint[]) AS r (chunk_no, original)
WHERE l.container_id = %(container_id)s AND l.chunk_no = r.chunk_no
"""

ORIGINALS: Final = """
SELECT chunk_no, original FROM duplicates
WHERE container_id = %(container_id)s AND chunk_no = ANY(%(chunk_nos)s::bigint[]) AND original IS NOT NULL
"""

SAME_TEXTS: Final = """
SELECT l.chunk_no, l.original
FROM duplicates l
JOIN chunks a ON a.container_id = l.container_id AND a.chunk_no = l.chunk_no
JOIN chunks b ON b.container_id = l.container_id AND b.chunk_no = l.original AND b.content_hash = a.content_hash
WHERE l.container_id = %(container_id)s AND l.chunk_no = ANY(%(chunk_nos)s::bigint[])
"""

CONTENT_HASHES: Final = f"""
SELECT c.container_id, c.chunk_no, c.content_hash
FROM unnest(%(container_ids)s::text[], %(chunk_nos)s::bigint[]) AS r (container_id, chunk_no)
JOIN chunks c ON c.container_id = r.container_id AND c.chunk_no = r.chunk_no
WHERE c.modality = 'text' AND c.text <> '' AND c.position < {FIRST_POSITION}
"""

_PACKED: Final = np.dtype(
    [("chunk_no", ">i8"), ("original", ">i8"), ("signature", "u1", (SIGNATURE_BYTES,))]
)


@dataclass(frozen=True, slots=True)
class Signatures:
    """Every compared chunk of a container; the three arrays have the same order."""

    chunk_nos: NDArray[np.int64]
    originals: NDArray[np.int64]
    """-1 where a chunk repeats nothing."""
    bits: NDArray[np.uint64]
    """Four words per chunk."""


async def leave(conn: Connection, container_id: str, chunk_nos: Iterable[int]) -> None:
    """Mark ``chunk_nos`` as pending: they became visible or invisible."""
    ranges = consecutive(chunk_nos)
    if ranges:
        values = {"firsts": [first for first, _ in ranges], "lasts": [last for _, last in ranges]}
        await conn.execute(LEAVE, {"container_id": container_id, **values})


def consecutive(chunk_nos: Iterable[int]) -> list[tuple[int, int]]:
    """First and last of each run of consecutive numbers."""
    runs: list[tuple[int, int]] = []
    for chunk_no in sorted(set(chunk_nos)):
        if runs and runs[-1][1] == chunk_no - 1:
            runs[-1] = runs[-1][0], chunk_no
        else:
            runs.append((chunk_no, chunk_no))
    return runs


async def leave_all(conn: Connection, container_id: str) -> None:
    """Mark all chunks as pending."""
    await conn.execute(LEAVE_ALL, {"container_id": container_id})


async def pending(conn: Connection, container_id: str, limit: int) -> list[PendingRange]:
    """The pending chunks, lowest chunk_nos first."""
    cursor = await conn.execute(PENDING, {"container_id": container_id, "limit": limit})
    return [
        PendingRange(r["id"], r["first_chunk_no"], r["last_chunk_no"])
        for r in await cursor.fetchall()
    ]


async def settle(
    conn: Connection, done: Sequence[PendingRange], shorter: PendingRange | None
) -> None:
    """Delete the finished pending ranges; of ``shorter`` the rest stays."""
    if done:
        await conn.execute(SETTLE, {"ids": [one.id for one in done]})
    if shorter is not None:
        await conn.execute(SHORTEN, {"id": shorter.id, "first": shorter.first})


async def waiting(conn: Connection, container_id: str) -> bool:
    """Whether chunks are pending."""
    cursor = await conn.execute(WAITING, {"container_id": container_id})
    return await cursor.fetchone() is not None


async def with_backlog(conn: Connection) -> list[str]:
    """Containers with pending chunks."""
    cursor = await conn.execute(WITH_BACKLOG)
    return [row["container_id"] for row in await cursor.fetchall()]


async def release(conn: Connection, container_id: str, originals: Sequence[int]) -> list[int]:
    """Duplicates of these chunks become originals again; returns them."""
    if not originals:
        return []
    cursor = await conn.execute(
        RELEASE, {"container_id": container_id, "originals": list(originals)}
    )
    return [r["chunk_no"] for r in await cursor.fetchall()]


async def drop_dead(conn: Connection, container_id: str, chunk_nos: Sequence[int]) -> None:
    """Delete the rows of those ``chunk_nos`` that are no longer visible."""
    await conn.execute(DROP_DEAD, {"container_id": container_id, "chunk_nos": list(chunk_nos)})


async def subjects(
    conn: Connection, container_id: str, chunk_nos: Sequence[int], *, collection_id: int
) -> list[dict[str, Any]]:
    """The data for the comparison of the visible ones of ``chunk_nos``, in order; points in that collection."""
    values = {
        "container_id": container_id,
        "chunk_nos": list(chunk_nos),
        "collection_id": collection_id,
    }
    cursor = await conn.execute(SUBJECTS, values)
    return await cursor.fetchall()


async def signatures(conn: Connection, container_id: str) -> Signatures:
    cursor = await conn.execute(SIGNATURES, {"container_id": container_id}, binary=True)
    row = await cursor.fetchone()
    rows = np.frombuffer((row and row["packed"]) or b"", dtype=_PACKED)
    return Signatures(
        chunk_nos=rows["chunk_no"].astype(np.int64),
        originals=rows["original"].astype(np.int64),
        bits=np.ascontiguousarray(rows["signature"]).view(np.uint64),
    )


async def keep(
    conn: Connection,
    container_id: str,
    signed: Mapping[int, bytes],
    originals: Mapping[int, int],
) -> None:
    """Write results: of the chunks in ``signed`` with their signatures, and of chunks that have a row already."""
    if signed:
        chunk_nos = sorted(signed)
        values = {
            "chunk_nos": chunk_nos,
            "signatures": [signed[chunk_no] for chunk_no in chunk_nos],
            "originals": [originals.get(chunk_no) for chunk_no in chunk_nos],
        }
        await conn.execute(KEEP, {"container_id": container_id, **values})
    others = sorted(originals.keys() - signed.keys())
    if others:
        values = {"chunk_nos": others, "originals": [originals[chunk_no] for chunk_no in others]}
        await conn.execute(REPEAT, {"container_id": container_id, **values})


async def originals(
    conn: Connection, container_id: str, chunk_nos: Sequence[int], *, to_the_letter: bool = False
) -> dict[int, int]:
    """Those of ``chunk_nos`` that repeat another chunk, each with the chunk_no of its original; with ``to_the_letter``
    only those with an identical text."""
    statement = SAME_TEXTS if to_the_letter else ORIGINALS
    cursor = await conn.execute(
        statement, {"container_id": container_id, "chunk_nos": list(chunk_nos)}
    )
    return {r["chunk_no"]: r["original"] for r in await cursor.fetchall()}


async def content_hashes(
    conn: Connection, chunks: Sequence[tuple[str, int]]
) -> dict[tuple[str, int], str]:
    """The hash of the text of each chunk that has one; chunks are given as (container, chunk_no)."""
    values = {
        "container_ids": [container_id for container_id, _ in chunks],
        "chunk_nos": [chunk_no for _, chunk_no in chunks],
    }
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(CONTENT_HASHES, values)
        return {(container_id, chunk_no): text async for container_id, chunk_no, text in cursor}
