"""Rows of near-duplicates: which chunk repeats which earlier one, and which are still to be judged.

An original repeats nothing; a duplicate names its original by ord. One job a container writes here; a
publication or a deletion only leaves word of the ords that came and went.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from latent_core.registry.connection import Connection

SIGNATURE_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Pending:
    """Consecutive ords that somebody left to be judged."""

    id: int
    first: int
    last: int


LEAVE: Final = """
INSERT INTO unjudged_ords (container_id, first_ord, last_ord)
SELECT %(container_id)s, r.first_ord, r.last_ord
FROM unnest(%(firsts)s::bigint[], %(lasts)s::bigint[]) AS r (first_ord, last_ord)
"""

LEAVE_ALL: Final = """
INSERT INTO unjudged_ords (container_id, first_ord, last_ord)
SELECT container_id, 0, next_ord - 1 FROM ord_counters WHERE container_id = %(container_id)s AND next_ord > 0
"""

PENDING: Final = """
SELECT id, first_ord, last_ord FROM unjudged_ords
WHERE container_id = %(container_id)s
ORDER BY first_ord, id
LIMIT %(limit)s
"""

SETTLE: Final = "DELETE FROM unjudged_ords WHERE id = ANY(%(ids)s::bigint[])"

SHORTEN: Final = "UPDATE unjudged_ords SET first_ord = %(first)s WHERE id = %(id)s"

WAITING: Final = "SELECT 1 FROM unjudged_ords WHERE container_id = %(container_id)s LIMIT 1"

WITH_BACKLOG: Final = "SELECT DISTINCT container_id FROM unjudged_ords ORDER BY container_id"

RELEASE: Final = """
UPDATE likenesses SET original = NULL
WHERE container_id = %(container_id)s AND original = ANY(%(originals)s::bigint[])
RETURNING ord
"""

DROP_DEAD: Final = """
DELETE FROM likenesses l
WHERE l.container_id = %(container_id)s AND l.ord = ANY(%(ords)s::bigint[])
  AND NOT EXISTS (SELECT 1 FROM chunks c JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
                  WHERE c.container_id = l.container_id AND c.ord = l.ord AND d.deleted_at IS NULL)
"""

SUBJECTS: Final = """
SELECT c.ord, c.id, c.generation, coalesce(n.windows, c.windows) AS windows, c.content_hash, c.block_type, l.original
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
LEFT JOIN point_counts n ON n.container_id = c.container_id AND n.ord = c.ord AND n.stored_in = %(stored_in)s
LEFT JOIN likenesses l ON l.container_id = c.container_id AND l.ord = c.ord
WHERE c.container_id = %(container_id)s AND c.ord = ANY(%(ords)s::bigint[]) AND d.deleted_at IS NULL
  AND c.modality = 'text'
ORDER BY c.ord
"""

# One value instead of a row a chunk: 48 bytes each, taken apart by numpy.
SIGNATURES: Final = """
SELECT string_agg(int8send(ord) || int8send(coalesce(original, -1)) || signature, ''::bytea) AS packed
FROM likenesses WHERE container_id = %(container_id)s
"""

KEEP: Final = """
INSERT INTO likenesses (container_id, ord, signature, original)
SELECT %(container_id)s, r.ord, r.signature, r.original
FROM unnest(%(ords)s::bigint[], %(signatures)s::bytea[], %(originals)s::bigint[]) AS r (ord, signature, original)
ON CONFLICT (container_id, ord) DO UPDATE SET signature = excluded.signature, original = excluded.original
"""

REPEAT: Final = """
UPDATE likenesses l SET original = r.original
FROM unnest(%(ords)s::bigint[], %(originals)s::bigint[]) AS r (ord, original)
WHERE l.container_id = %(container_id)s AND l.ord = r.ord
"""

ORIGINALS: Final = """
SELECT ord, original FROM likenesses
WHERE container_id = %(container_id)s AND ord = ANY(%(ords)s::bigint[]) AND original IS NOT NULL
"""

SAME_TEXTS: Final = """
SELECT l.ord, l.original
FROM likenesses l
JOIN chunks a ON a.container_id = l.container_id AND a.ord = l.ord
JOIN chunks b ON b.container_id = l.container_id AND b.ord = l.original AND b.content_hash = a.content_hash
WHERE l.container_id = %(container_id)s AND l.ord = ANY(%(ords)s::bigint[])
"""

_PACKED: Final = np.dtype(
    [("ord", ">i8"), ("original", ">i8"), ("signature", "u1", (SIGNATURE_BYTES,))]
)


@dataclass(frozen=True, slots=True)
class Signatures:
    """Every judged chunk of a container; rows of the three arrays belong together."""

    ords: NDArray[np.int64]
    originals: NDArray[np.int64]
    """-1 where a chunk repeats nothing."""
    bits: NDArray[np.uint64]
    """Four words a chunk."""


async def leave(conn: Connection, container_id: str, ords: Iterable[int]) -> None:
    """Have ``ords`` judged: they became visible, or ceased to be."""
    ranges = consecutive(ords)
    if ranges:
        values = {"firsts": [first for first, _ in ranges], "lasts": [last for _, last in ranges]}
        await conn.execute(LEAVE, {"container_id": container_id, **values})


def consecutive(ords: Iterable[int]) -> list[tuple[int, int]]:
    """First and last of each run of consecutive numbers."""
    runs: list[tuple[int, int]] = []
    for ord_ in sorted(set(ords)):
        if runs and runs[-1][1] == ord_ - 1:
            runs[-1] = runs[-1][0], ord_
        else:
            runs.append((ord_, ord_))
    return runs


async def leave_all(conn: Connection, container_id: str) -> None:
    """Have everything judged anew."""
    await conn.execute(LEAVE_ALL, {"container_id": container_id})


async def pending(conn: Connection, container_id: str, limit: int) -> list[Pending]:
    """What was left to be judged, lowest ords first."""
    cursor = await conn.execute(PENDING, {"container_id": container_id, "limit": limit})
    return [Pending(r["id"], r["first_ord"], r["last_ord"]) for r in await cursor.fetchall()]


async def settle(conn: Connection, done: Sequence[Pending], shorter: Pending | None) -> None:
    """Forget what was judged; of ``shorter`` only the rest is left."""
    if done:
        await conn.execute(SETTLE, {"ids": [one.id for one in done]})
    if shorter is not None:
        await conn.execute(SHORTEN, {"id": shorter.id, "first": shorter.first})


async def waiting(conn: Connection, container_id: str) -> bool:
    """Whether anything is left to be judged."""
    cursor = await conn.execute(WAITING, {"container_id": container_id})
    return await cursor.fetchone() is not None


async def with_backlog(conn: Connection) -> list[str]:
    """Containers with something left to be judged."""
    cursor = await conn.execute(WITH_BACKLOG)
    return [row["container_id"] for row in await cursor.fetchall()]


async def release(conn: Connection, container_id: str, originals: Sequence[int]) -> list[int]:
    """Duplicates of these stand for themselves again; which they are."""
    if not originals:
        return []
    cursor = await conn.execute(
        RELEASE, {"container_id": container_id, "originals": list(originals)}
    )
    return [r["ord"] for r in await cursor.fetchall()]


async def drop_dead(conn: Connection, container_id: str, ords: Sequence[int]) -> None:
    """Forget those of ``ords`` that are not visible any more."""
    await conn.execute(DROP_DEAD, {"container_id": container_id, "ords": list(ords)})


async def subjects(
    conn: Connection, container_id: str, ords: Sequence[int], *, stored_in: int
) -> list[dict[str, Any]]:
    """What judging needs to know of those of ``ords`` that are visible, in order; points in that collection."""
    values = {"container_id": container_id, "ords": list(ords), "stored_in": stored_in}
    cursor = await conn.execute(SUBJECTS, values)
    return await cursor.fetchall()


async def signatures(conn: Connection, container_id: str) -> Signatures:
    cursor = await conn.execute(SIGNATURES, {"container_id": container_id}, binary=True)
    row = await cursor.fetchone()
    rows = np.frombuffer((row and row["packed"]) or b"", dtype=_PACKED)
    return Signatures(
        ords=rows["ord"].astype(np.int64),
        originals=rows["original"].astype(np.int64),
        bits=np.ascontiguousarray(rows["signature"]).view(np.uint64),
    )


async def keep(
    conn: Connection,
    container_id: str,
    signed: Mapping[int, bytes],
    originals: Mapping[int, int],
) -> None:
    """Write verdicts: of the chunks in ``signed`` with their signatures, and of others that are known."""
    if signed:
        ords = sorted(signed)
        values = {
            "ords": ords,
            "signatures": [signed[ord_] for ord_ in ords],
            "originals": [originals.get(ord_) for ord_ in ords],
        }
        await conn.execute(KEEP, {"container_id": container_id, **values})
    others = sorted(originals.keys() - signed.keys())
    if others:
        values = {"ords": others, "originals": [originals[ord_] for ord_ in others]}
        await conn.execute(REPEAT, {"container_id": container_id, **values})


async def originals(
    conn: Connection, container_id: str, ords: Sequence[int], *, to_the_letter: bool = False
) -> dict[int, int]:
    """Those of ``ords`` that repeat another chunk, each with the ord of its original; ``to_the_letter``: whose
    texts are the same."""
    statement = SAME_TEXTS if to_the_letter else ORIGINALS
    cursor = await conn.execute(statement, {"container_id": container_id, "ords": list(ords)})
    return {r["ord"]: r["original"] for r in await cursor.fetchall()}
