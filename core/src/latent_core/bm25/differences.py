"""Whether the keyword index matches the chunks, for the doctor.

Two passes in short transactions compute two fingerprints of every live chunk, one from its term vector and one from
its postings. If they differ, one snapshot decides. This is exact during concurrent writes: a chunk_no is never
reused, and neither a chunk nor its postings change between publication and deletion. So a chunk that is live in the
first pass and in the last snapshot was live all the time, and its postings were read completely (one statement per
term). The snapshot clears everything that changed in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from psycopg.rows import tuple_row

from latent_core.bm25.packing import (
    MAX_LENGTH,
    MAX_TF,
    PackedPostings,
    Postings,
    unpack,
    unpack_chunk_nos,
)
from latent_core.db.connection import Connection, Database

PAGE_CHUNKS: Final = 2000
PAGE_ROWS: Final = 20_000
PAGE_POSTINGS: Final = 2_000_000
NAMED_TERMS: Final = 5
"""Per message."""

CHUNKS: Final = """
SELECT c.chunk_no, c.length, tsvector_to_array(c.tsv), ARRAY(SELECT cardinality(positions) FROM unnest(c.tsv))
FROM chunks c JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE c.container_id = %(container_id)s AND d.deleted_at IS NULL AND c.chunk_no > %(after)s
ORDER BY c.chunk_no LIMIT %(limit)s
"""

CHUNK: Final = """
SELECT c.length, tsvector_to_array(c.tsv), ARRAY(SELECT cardinality(positions) FROM unnest(c.tsv))
FROM chunks c JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE c.container_id = %(container_id)s AND c.chunk_no = %(chunk_no)s AND d.deleted_at IS NULL
"""

# Whole terms only: up to the one in which the page is full.
POSTINGS: Final = """
WITH page AS (
    SELECT max(term) AS last FROM (
        SELECT term, sum(n) OVER (ORDER BY term) - n AS before FROM (
            SELECT term, octet_length(tfs) AS n FROM postings
            WHERE container_id = %(container_id)s AND term > %(after)s
            UNION ALL
            SELECT term, octet_length(tfs) FROM unmerged_postings
            WHERE container_id = %(container_id)s AND term > %(after)s
            ORDER BY term LIMIT %(rows)s
        ) rows
    ) counted WHERE before < %(postings)s
)
SELECT term, chunk_nos, tfs, lens FROM postings
WHERE container_id = %(container_id)s AND term > %(after)s AND term <= (SELECT last FROM page)
UNION ALL
SELECT term, chunk_nos, tfs, lens FROM unmerged_postings
WHERE container_id = %(container_id)s AND term > %(after)s AND term <= (SELECT last FROM page)
ORDER BY term
"""

TERMS: Final = """
SELECT term, chunk_nos, tfs, lens FROM postings WHERE container_id = %(container_id)s AND term = ANY(%(terms)s)
UNION ALL
SELECT term, chunk_nos, tfs, lens FROM unmerged_postings WHERE container_id = %(container_id)s AND term = ANY(%(terms)s)
"""

DEAD: Final = "SELECT chunk_nos FROM dead_chunk_nos WHERE container_id = %(container_id)s"

STATS: Final = """
SELECT s.live_chunks, s.live_length, s.dead_chunks, l.chunks, l.length, d.chunk_nos
FROM (SELECT count(*) AS chunks, coalesce(sum(c.length), 0)::bigint AS length
      FROM chunks c JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
      WHERE c.container_id = %(container_id)s AND d.deleted_at IS NULL) l
CROSS JOIN (SELECT coalesce(sum(octet_length(chunk_nos) / 4), 0)::bigint AS chunk_nos
            FROM dead_chunk_nos WHERE container_id = %(container_id)s) d
LEFT JOIN keyword_stats s ON s.container_id = %(container_id)s
"""


class DifferenceKind(StrEnum):
    MISSING = "missing"
    """A live chunk is not found by one of its terms."""
    WRONG = "wrong"
    """A live chunk is found by a term that it does not contain, or with a wrong frequency."""
    ORPHAN = "orphan"
    """A posting refers to a chunk that is neither live nor known as dead."""
    STATS = "stats"
    """The counted chunks or lengths differ from those of the live chunks."""


@dataclass(frozen=True, slots=True)
class KeywordDifference:
    kind: DifferenceKind
    object: str
    """A chunk_no, or the statistics."""
    message: str


@dataclass(slots=True)
class _Ledger:
    """Live chunks by ascending chunk_no, with the fingerprints of their terms and of their postings."""

    chunk_nos: NDArray[np.uint32] = field(default_factory=lambda: np.empty(0, np.uint32))
    lengths: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    held: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    named: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    suspects: set[int] = field(default_factory=set)
    strangers: dict[int, str] = field(default_factory=dict)
    """chunk_nos that have postings and are not live, with one of the terms; at most ``limit``."""

    def take(self, rows: Sequence[tuple[int, int, list[str], list[int]]]) -> None:
        terms = [term for row in rows for term in row[2]]
        counts = np.array([count for row in rows for count in row[3]], np.uint64)
        owners = np.repeat(np.arange(len(rows)), [len(row[2]) for row in rows])
        held = np.zeros(len(rows), np.uint64)
        np.add.at(held, owners, _marks(_hashes(terms), np.minimum(counts, np.uint64(MAX_TF))))
        self.chunk_nos = np.concatenate(
            [self.chunk_nos, np.array([row[0] for row in rows], np.uint32)]
        )
        self.lengths = np.concatenate([self.lengths, np.array([row[1] for row in rows], np.int64)])
        self.held = np.concatenate([self.held, held])
        self.named = np.concatenate([self.named, np.zeros(len(rows), np.uint64)])

    def hold_against(
        self, rows: Sequence[tuple[str, bytes, bytes, bytes]], dead: NDArray[np.uint32], limit: int
    ) -> None:
        found = unpack([PackedPostings(*row[1:]) for row in rows])
        sizes = [len(row[2]) for row in rows]
        hashes = np.repeat(_hashes([row[0] for row in rows]), sizes)
        marks = _marks(hashes, found.tfs.astype(np.uint64))
        known = np.isin(found.chunk_nos, self.chunk_nos)
        places = np.searchsorted(self.chunk_nos, found.chunk_nos[known])
        np.add.at(self.named, places, marks[known])
        lengths = np.minimum(self.lengths[places], MAX_LENGTH)
        self.suspects.update(found.chunk_nos[known][lengths != found.lens[known]][:limit].tolist())
        ends = np.cumsum(sizes)
        strange = np.flatnonzero(~known & ~np.isin(found.chunk_nos, dead))
        for place in strange[: limit - len(self.strangers)]:
            term = rows[int(np.searchsorted(ends, place, side="right"))][0]
            self.strangers.setdefault(int(found.chunk_nos[place]), term)


def _hashes(terms: Sequence[str]) -> NDArray[np.uint64]:
    return np.array([hash(term) for term in terms], np.int64).view(np.uint64)


def _marks(hashes: NDArray[np.uint64], tfs: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One number per (term, tf); equal sums mean equal sets (splitmix64)."""
    mixed = hashes + tfs * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    marks: NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(31))
    return marks


async def differences(
    database: Database, container_id: str, *, limit: int
) -> list[KeywordDifference]:
    """At most ``limit`` differences between the live chunks and the keyword index of a container."""
    ledger = _Ledger()
    async for chunks in _chunk_pages(database, container_id):
        await asyncio.to_thread(ledger.take, chunks)
    dead = await _dead(database, container_id)
    async for rows in _posting_pages(database, container_id):
        await asyncio.to_thread(ledger.hold_against, rows, dead, limit)
    live_marked_dead = np.intersect1d(ledger.chunk_nos, dead)
    unequal = ledger.chunk_nos[ledger.held != ledger.named]
    suspects = ledger.suspects.union(live_marked_dead[:limit].tolist(), unequal[:limit].tolist())
    found = [
        d
        for chunk_no in sorted(suspects)[:limit]
        for d in await _judge(database, container_id, chunk_no)
    ]
    for chunk_no, term in sorted(ledger.strangers.items()):
        found += await _judge_stranger(database, container_id, chunk_no, term)
    found += await _judge_stats(database, container_id)
    return found[:limit]


async def _chunk_pages(
    database: Database, container_id: str
) -> AsyncIterator[list[tuple[int, int, list[str], list[int]]]]:
    after = -1
    while True:
        parameters = {"container_id": container_id, "after": after, "limit": PAGE_CHUNKS}
        rows = await _fetch(database, CHUNKS, parameters)
        if not rows:
            return
        yield rows
        after = rows[-1][0]


async def _posting_pages(
    database: Database, container_id: str
) -> AsyncIterator[list[tuple[str, bytes, bytes, bytes]]]:
    after = ""
    while True:
        parameters = {
            "container_id": container_id,
            "after": after,
            "rows": PAGE_ROWS,
            "postings": PAGE_POSTINGS,
        }
        rows = await _fetch(database, POSTINGS, parameters)
        if not rows:
            return
        yield rows
        after = rows[-1][0]


async def _fetch(database: Database, statement: str, parameters: dict[str, Any]) -> list[Any]:
    async with database.transaction() as conn:
        return await _rows(conn, statement, parameters)


async def _rows(conn: Connection, statement: Any, parameters: dict[str, Any]) -> list[Any]:
    async with conn.cursor(row_factory=tuple_row, binary=True) as cursor:
        await cursor.execute(statement, parameters)
        return await cursor.fetchall()


async def _dead(database: Database, container_id: str) -> NDArray[np.uint32]:
    rows = await _fetch(database, DEAD, {"container_id": container_id})
    return unpack_chunk_nos([row[0] for row in rows])


async def _judge(database: Database, container_id: str, chunk_no: int) -> list[KeywordDifference]:
    """The differences of one chunk in one snapshot; none if it is no longer live."""
    async with database.transaction(isolation="repeatable read", read_only=True) as conn:
        chunk = await _rows(conn, CHUNK, {"container_id": container_id, "chunk_no": chunk_no})
        if not chunk:
            return []
        length, terms, counts = chunk[0]
        dead = await _rows(conn, DEAD, {"container_id": container_id})
        rows = await _rows(conn, TERMS, {"container_id": container_id, "terms": terms})
    if chunk_no in unpack_chunk_nos([row[0] for row in dead]):
        return [_wrong(chunk_no, "is live and counted among the dead: no keyword search finds it")]
    named = [(row[0], _only(unpack([PackedPostings(*row[1:])]), chunk_no)) for row in rows]
    absent = sorted(set(terms).difference(term for term, found in named if len(found)))
    if absent:
        return [
            KeywordDifference(
                DifferenceKind.MISSING,
                str(chunk_no),
                f"chunk {chunk_no} is not found by {_listed(absent)}",
            )
        ]
    expected = sorted(zip(terms, (min(n, MAX_TF) for n in counts), strict=True))
    weighed = sorted((term, int(tf)) for term, found in named for tf in found.tfs)
    lengths = {int(n) for _, found in named for n in found.lens}
    if weighed != expected or lengths - {min(length, MAX_LENGTH)}:
        return [_wrong(chunk_no, "is counted under its terms with other frequencies or lengths")]
    return [_wrong(chunk_no, "is found by terms that it does not hold")]


def _only(postings: Postings, chunk_no: int) -> Postings:
    return postings.only(postings.chunk_nos == chunk_no)


def _wrong(chunk_no: int, what: str) -> KeywordDifference:
    return KeywordDifference(DifferenceKind.WRONG, str(chunk_no), f"chunk {chunk_no} {what}")


def _listed(terms: Sequence[str]) -> str:
    more = f" and {len(terms) - NAMED_TERMS} more" if len(terms) > NAMED_TERMS else ""
    return ", ".join(f"'{term}'" for term in terms[:NAMED_TERMS]) + more


async def _judge_stranger(
    database: Database, container_id: str, chunk_no: int, term: str
) -> list[KeywordDifference]:
    async with database.transaction(isolation="repeatable read", read_only=True) as conn:
        live = await _rows(conn, CHUNK, {"container_id": container_id, "chunk_no": chunk_no})
        dead = await _rows(conn, DEAD, {"container_id": container_id})
        rows = await _rows(conn, TERMS, {"container_id": container_id, "terms": [term]})
    known = bool(live) or chunk_no in unpack_chunk_nos([row[0] for row in dead])
    if known or chunk_no not in unpack_chunk_nos([row[1] for row in rows]):
        return []
    message = f"'{term}' names chunk {chunk_no}, which neither lives nor is known to be dead"
    return [KeywordDifference(DifferenceKind.ORPHAN, str(chunk_no), message)]


async def _judge_stats(database: Database, container_id: str) -> list[KeywordDifference]:
    (row,) = await _fetch(database, STATS, {"container_id": container_id})
    counted, actual = tuple(value or 0 for value in row[:3]), tuple(row[3:])
    names = ("live chunks", "terms of live chunks", "dead chunks")
    return [
        KeywordDifference(
            DifferenceKind.STATS,
            "keyword_stats",
            f"{stated} {name} are counted, and there are {there}",
        )
        for name, stated, there in zip(names, counted, actual, strict=True)
        if stated != there
    ]
