"""Rows of the keyword index, written in the transaction that publishes or deletes (DESIGN §7).

Everything uses the caller's connection and commits nothing. Lock order: postings in (term, block) order, dead
chunk_nos, and last the statistics row of the container, which every writer needs.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final, LiteralString, Self

import numpy as np
from numpy.typing import NDArray
from psycopg.rows import tuple_row
from psycopg.types.json import Jsonb

from latent_core.bm25.differences import KeywordDifference, differences
from latent_core.bm25.packing import (
    MAX_LENGTH,
    ROW_POSTINGS,
    ChunkTerms,
    KeywordColumns,
    PackedTerms,
    columns_of,
    pack_chunk_nos,
    pack_columns,
)
from latent_core.db.connection import Connection
from latent_core.db.copying import BINARY_END, BINARY_HEAD, copy_bytes

_FIELDS: Final = (6).to_bytes(2, "big")
_LENGTH_BYTES: Final = 4
_NUMBER_BYTES: Final = 8
_BYTES_AT_ONCE: Final = 256 * 1024

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PostingBlock:
    """Rows of distinct terms in one new block, whose number is filled in when it is known."""

    data: Bytes
    places: Numbers
    """The position of the block's number in each row."""

    @property
    def rows(self) -> int:
        return len(self.places)

    @classmethod
    def of(cls, container_id: str, packed: PackedTerms) -> Self:
        """One field after the other, each for all rows."""
        terms = [term.encode() for term in packed.terms]
        widths = np.array([len(term) for term in terms], np.int64)
        ends = np.array([0, *packed.ends], np.int64)
        postings = ends[1:] - ends[:-1]
        named = container_id.encode()
        head = _FIELDS + len(named).to_bytes(_LENGTH_BYTES, "big") + named
        fields: tuple[tuple[Numbers, bytes], ...] = (
            (widths, b"".join(terms)),
            (np.full(len(terms), _NUMBER_BYTES, np.int64), bytes(_NUMBER_BYTES * len(terms))),
            (4 * postings, packed.whole.chunk_nos),
            (postings, packed.whole.tfs),
            (2 * postings, packed.whole.lens),
        )
        sizes = sum((size + _LENGTH_BYTES for size, _ in fields), np.full(len(terms), len(head)))
        at = len(BINARY_HEAD) + np.cumsum(sizes) - sizes
        data = np.empty(len(BINARY_HEAD) + int(sizes.sum()) + len(BINARY_END), np.uint8)
        data[: len(BINARY_HEAD)] = _bytes(BINARY_HEAD)
        data[-len(BINARY_END) :] = _bytes(BINARY_END)
        data[at[:, None] + np.arange(len(head))] = _bytes(head)
        at += len(head)
        number_at = at + _LENGTH_BYTES + widths + _LENGTH_BYTES
        for size, values in fields:
            data[at[:, None] + np.arange(_LENGTH_BYTES)] = _lengths(size)
            at += _LENGTH_BYTES
            _fill(data, at, size, values)
            at += size
        return cls(data, number_at)

    def numbered(self, number: int) -> memoryview:
        """The rows with this number, with COPY's header and trailer."""
        self.data[self.places[:, None] + np.arange(_NUMBER_BYTES)] = _bytes(
            number.to_bytes(_NUMBER_BYTES, "big")
        )
        return self.data.data


def _bytes(data: bytes) -> Bytes:
    return np.frombuffer(data, np.uint8)


def _lengths(sizes: Numbers) -> Bytes:
    return sizes.astype(">u4").view(np.uint8).reshape(-1, _LENGTH_BYTES)


def _fill(data: Bytes, starts: Numbers, sizes: Numbers, values: bytes) -> None:
    """Copy values of the lengths ``sizes`` to ``starts``, in parts, since an index per byte is large."""
    parts = 1 + len(values) // _BYTES_AT_ONCE
    left = _bytes(values)
    for start, size in zip(
        np.array_split(starts, parts), np.array_split(sizes, parts), strict=True
    ):
        total = int(size.sum())
        places = np.repeat(start - np.cumsum(size) + size, size) + np.arange(total)
        data[places], left = left[:total], left[total:]


__all__ = [
    "KeywordDifference",
    "PreparedPostings",
    "differences",
    "drop",
    "drop_batch",
    "mark_dead",
    "prepare",
    "write",
    "write_prepared",
]

NEXT_BLOCK: Final = "SELECT nextval('posting_blocks')"

COPY: Final = "COPY unmerged_postings (container_id, term, block, chunk_nos, tfs, lens) FROM STDIN (FORMAT BINARY)"
COPY_SETTLED: Final = (
    "COPY postings (container_id, term, block, chunk_nos, tfs, lens) FROM STDIN (FORMAT BINARY)"
)

COUNT: Final = """
INSERT INTO keyword_stats AS s
       (container_id, live_chunks, live_length, unmerged_writes, unmerged_rows, dead_chunks, languages)
VALUES (%(container_id)s, %(chunks)s, %(length)s, 1, %(rows)s, %(dead)s, %(languages)s)
ON CONFLICT (container_id) DO UPDATE SET
    live_chunks = s.live_chunks + EXCLUDED.live_chunks,
    live_length = s.live_length + EXCLUDED.live_length,
    unmerged_writes = s.unmerged_writes + 1,
    unmerged_rows = s.unmerged_rows + EXCLUDED.unmerged_rows,
    dead_chunks = s.dead_chunks + EXCLUDED.dead_chunks,
    languages = CASE WHEN EXCLUDED.languages = '{}' THEN s.languages ELSE (
        SELECT jsonb_object_agg(key, chunks)
        FROM (
            SELECT key, sum(value::bigint) AS chunks
            FROM (
                SELECT * FROM jsonb_each_text(s.languages)
                UNION ALL
                SELECT * FROM jsonb_each_text(EXCLUDED.languages)
            ) counted
            GROUP BY key
        ) added
    ) END
"""

MARK_DEAD: Final = """
INSERT INTO dead_chunk_nos (container_id, block, chunk_nos) VALUES (%(container_id)s, nextval('posting_blocks'), %(chunk_nos)s)
"""

LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended(%(container_id)s, 7802))"

# By row address, as a join is planned badly when statistics are young; the lock keeps addresses valid.
DROP_SOME: Final = """
DELETE FROM postings
WHERE ctid = ANY (ARRAY(SELECT ctid FROM postings WHERE container_id = %(container_id)s LIMIT %(limit)s))
"""
DROP_UNMERGED: Final = """
DELETE FROM unmerged_postings
WHERE ctid = ANY (ARRAY(SELECT ctid FROM unmerged_postings WHERE container_id = %(container_id)s LIMIT %(limit)s))
"""
DROP_DEAD: Final = "DELETE FROM dead_chunk_nos WHERE container_id = %(container_id)s"
DROP_STATS: Final = "DELETE FROM keyword_stats WHERE container_id = %(container_id)s"

DROP_BATCH_ROWS: Final = 50_000


async def write(conn: Connection, container_id: str, entries: Sequence[ChunkTerms]) -> None:
    """Index the chunks of one publication: one row per distinct term.

    Every newly visible chunk belongs here, also one without terms: it counts in the average.
    """
    if entries:
        # A book has millions of postings; the loop serves others meanwhile.
        ready = await asyncio.to_thread(lambda: prepare(container_id, columns_of(entries)))
        await write_prepared(conn, container_id, ready, settled=False)


@dataclass(frozen=True, slots=True)
class PreparedPostings:
    """Chunks packed before their transaction, so that the transaction is short."""

    columns: KeywordColumns
    blocks: Sequence[PostingBlock]


def prepare(container_id: str, columns: KeywordColumns) -> PreparedPostings:
    """Pack chunks; slow, and needs no connection."""
    parts = [columns]
    if len(columns) > ROW_POSTINGS:
        places = range(len(columns))
        parts = [columns.only(places[n : n + ROW_POSTINGS]) for n in places[::ROW_POSTINGS]]
    return PreparedPostings(
        columns, [PostingBlock.of(container_id, pack_columns(part)) for part in parts]
    )


async def write_prepared(
    conn: Connection, container_id: str, prepared: PreparedPostings, *, settled: bool
) -> None:
    """Index the chunks; ``settled`` is for thousands together, whose long rows need no compaction.

    A compaction may run at the same time: it removes only chunk_nos that were dead at its start.
    """
    if not prepared.columns:
        return
    for block in prepared.blocks:
        await _copy(conn, block, COPY_SETTLED if settled else COPY)
    rows = 0 if settled else sum(block.rows for block in prepared.blocks)
    await _count(conn, container_id, _published(prepared.columns, rows))


async def mark_dead(conn: Connection, container_id: str, chunks: Sequence[tuple[int, int]]) -> None:
    """Remove visible chunks, given as (chunk_no, length), from the index, each exactly once.

    Their postings stay until a compaction drops them; searches after this commit ignore them.
    """
    if not chunks:
        return
    chunk_nos = pack_chunk_nos(sorted(chunk_no for chunk_no, _ in chunks))
    await conn.execute(MARK_DEAD, {"container_id": container_id, "chunk_nos": chunk_nos})
    length = sum(min(length, MAX_LENGTH) for _, length in chunks)
    await _count(conn, container_id, _StatsChange(-len(chunks), -length, dead=len(chunks)))


async def drop_batch(conn: Connection, container_id: str, limit: int = DROP_BATCH_ROWS) -> int:
    """Delete at most ``limit`` posting rows of a container; with the last ones everything else of it here.

    Returns the number of rows: fewer than ``limit`` means that nothing remains. Waits for a running compaction
    (``TimedOut`` after the deadline), which would add rows.
    """
    await conn.execute(LOCK, {"container_id": container_id})
    gone = 0
    for statement in (DROP_SOME, DROP_UNMERGED):
        parameters = {"container_id": container_id, "limit": limit - gone}
        gone += (await conn.execute(statement, parameters)).rowcount
    if gone < limit:
        await conn.execute(DROP_DEAD, {"container_id": container_id})
        await conn.execute(DROP_STATS, {"container_id": container_id})
    return gone


async def drop(conn: Connection, container_id: str) -> None:
    """Delete everything of a container in the caller's transaction; use ``drop_batch`` for large ones."""
    while await drop_batch(conn, container_id) == DROP_BATCH_ROWS:
        pass


async def _copy(conn: Connection, block: PostingBlock, statement: LiteralString) -> None:
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(NEXT_BLOCK)
        (number,) = await cursor.fetchone() or (0,)
    await copy_bytes(conn, statement, block.numbered(int(number)))


@dataclass(frozen=True, slots=True)
class _StatsChange:
    """The change of the statistics by one publication or deletion."""

    chunks: int
    length: int
    rows: int = 0
    dead: int = 0
    languages: Mapping[str, int] = field(default_factory=dict)


def _published(columns: KeywordColumns, unmerged_rows: int) -> _StatsChange:
    return _StatsChange(
        chunks=len(columns),
        length=sum(min(length, MAX_LENGTH) for length in columns.lengths),
        rows=unmerged_rows,
        languages=Counter(language for language in columns.languages if language),
    )


async def _count(conn: Connection, container_id: str, change: _StatsChange) -> None:
    parameters = asdict(change) | {"languages": Jsonb(dict(change.languages))}
    await conn.execute(COUNT, {"container_id": container_id, **parameters})
