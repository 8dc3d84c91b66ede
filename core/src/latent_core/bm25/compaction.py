"""Compaction: few long posting rows instead of many short ones, without dead chunks; and the rebuild of an index.

A publication writes one small row per term into ``unmerged_postings``, so a frequent term soon has one row per
publication. A run merges the loose rows of each term, with those of its rows in ``postings`` that are not much
longer (``CompactionRules.merge_ratio``), into one row of ``postings``. So a term keeps few rows, each much longer
than all shorter ones together, and a posting is rewritten a logarithmic number of times. If many chunks are dead,
all rows are then read once and dead postings dropped.

Why this is correct during concurrent publications, deletions and searches:

- *Searches* read statistics, dead chunk_nos and postings in one statement, so in one snapshot. Each step here is
one transaction that replaces rows by rows with the same live postings: every snapshot contains each live posting
exactly once.

- *Publications* only insert loose rows; *deletions* only insert dead chunk_nos. Only this module and ``drop_batch``
delete posting rows, and an advisory session lock per container keeps them apart. The connection that holds the lock
does the work, so both are lost together. The run waits for other writers only at the statistics row, which is
locked last, in one short transaction.

- *A dead chunk_no is removed only when no posting refers to it.* The run reads the set D of dead chunk_nos and
takes a ``ceiling`` from the sequence of blocks. A chunk dies after its publication has committed, so all rows that
refer to D were committed before D was read, and the loose ones among them have blocks below the ceiling. Every
loose row below the ceiling moves to ``postings``; remaining loose rows are newer than D. Then the run visits every
row of ``postings``, which only it changes, and purges it. After the last range no row refers to D, and the last
transaction removes exactly D from ``dead_chunk_nos``.

- *A run that ends early* (checkpoint, crash) may have dropped postings of dead chunks, but no dead chunk_no: the
next run starts with the same D or a larger one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from psycopg.rows import tuple_row

from latent_core.bm25 import postings
from latent_core.bm25.packing import (
    ROW_POSTINGS,
    ChunkTerms,
    PackedPostings,
    Postings,
    unpack,
    unpack_chunk_nos,
)
from latent_core.db.connection import Connection, Database
from latent_core.db.doctor.repairs import seize
from latent_core.db.session_locks import release


@dataclass(frozen=True, slots=True)
class CompactionRules:
    """When to compact, and how much per transaction."""

    range_rows: int = 50_000
    range_postings: int = 4_000_000
    """Postings per transaction: about 28 MB."""
    merge_ratio: int = 3
    """A row is merged with shorter ones unless it is more than this many times longer than all of them together."""
    unmerged_writes: int = 64
    """Publications and deletions until the next run: a query reads one more row per term for each."""
    unmerged_rows: int = 200_000
    """The same limit in rows, for large publications."""
    dead_chunks: int = 256
    dead_share: int = 8
    """Dead chunks are dropped from this ratio of live to dead chunks on."""

    def due(self, state: Mapping[str, int]) -> bool:
        """Whether the counters of ``keyword_stats`` require a run."""
        return (
            state["unmerged_writes"] >= self.unmerged_writes
            or state["unmerged_rows"] >= self.unmerged_rows
            or self.worth_purging(state["dead_chunks"], state["live_chunks"])
        )

    def worth_purging(self, dead: int, live: int) -> bool:
        return dead >= self.dead_chunks and dead * self.dead_share >= live


RULES: Final = CompactionRules()

Checkpoint = Callable[[], Awaitable[None]]
_Bounds = dict[str, Any]
"""Parameters of a range: after (term, block), up to (end_term, end_block)."""

TRY_LOCK: Final = "SELECT pg_try_advisory_lock(hashtextextended(%(container_id)s, 7802))"
UNLOCK: Final = "SELECT pg_advisory_unlock(hashtextextended(%(container_id)s, 7802))"

# The ceiling is taken after the snapshot of this statement: above every block it sees.
BEGIN: Final = """
SELECT nextval('posting_blocks') AS ceiling, s.live_chunks, s.unmerged_writes,
       ARRAY(SELECT block FROM dead_chunk_nos WHERE container_id = %(container_id)s ORDER BY block) AS dead_blocks,
       ARRAY(SELECT chunk_nos FROM dead_chunk_nos WHERE container_id = %(container_id)s ORDER BY block) AS dead_chunk_nos
FROM keyword_stats s WHERE s.container_id = %(container_id)s
"""

# The last row of the next range: bounded by rows, and by postings unless one row alone has more.
UNMERGED_END: Final = """
SELECT term, block
FROM (
    SELECT term, block, sum(n) OVER (ORDER BY term, block) - n AS before
    FROM (
        SELECT term, block, octet_length(tfs) AS n
        FROM unmerged_postings
        WHERE container_id = %(container_id)s AND (term, block) > (%(term)s, %(block)s) AND block < %(ceiling)s
        ORDER BY term, block
        LIMIT %(rows)s
    ) page
) counted
WHERE before < %(postings)s
ORDER BY term DESC, block DESC
LIMIT 1
"""

RANGE_END: Final = """
SELECT term, block
FROM (
    SELECT term, block, sum(n) OVER (ORDER BY term, block) - n AS before
    FROM (
        SELECT term, block, octet_length(tfs) AS n
        FROM postings
        WHERE container_id = %(container_id)s AND (term, block) > (%(term)s, %(block)s)
        ORDER BY term, block
        LIMIT %(rows)s
    ) page
) counted
WHERE before < %(postings)s
ORDER BY term DESC, block DESC
LIMIT 1
"""

# The loose rows of a range, and of their terms the settled rows, shortest first, up to the first that is
# too long to join. Rows longer than half of what a row may hold are left as they are; the others are
# cut into new rows of at most that length. OFFSET 0 makes each term an index look-up of its own.
MERGE: Final = """
WITH moved AS (
    DELETE FROM unmerged_postings
    WHERE container_id = %(container_id)s AND (term, block) > (%(term)s, %(block)s)
      AND (term, block) <= (%(end_term)s, %(end_block)s) AND block < %(ceiling)s
    RETURNING term, block, chunk_nos, tfs, lens
), fresh AS (
    SELECT term, sum(octet_length(tfs)) AS n FROM moved GROUP BY term
), settled AS (
    SELECT p.place, f.term, p.n, p.block, f.n + sum(p.n) OVER (PARTITION BY f.term ORDER BY p.n, p.block) AS total
    FROM fresh f
    CROSS JOIN LATERAL (
        SELECT ctid AS place, block, octet_length(tfs) AS n
        FROM postings
        WHERE container_id = %(container_id)s AND term = f.term AND octet_length(tfs) <= %(half)s
        OFFSET 0
    ) p
), judged AS (
    SELECT place, bool_or(n > %(ratio)s * (total - n)) OVER (PARTITION BY term ORDER BY n, block) AS apart
    FROM settled
), gone AS (
    DELETE FROM postings
    WHERE ctid = ANY (ARRAY(SELECT place FROM judged WHERE NOT apart))
    RETURNING term, block, chunk_nos, tfs, lens
), taken AS (
    SELECT * FROM moved UNION ALL SELECT * FROM gone
), parted AS (
    SELECT *, CASE WHEN octet_length(tfs) > %(half)s THEN -block ELSE
        (sum(octet_length(tfs)) FILTER (WHERE octet_length(tfs) <= %(half)s)
             OVER (PARTITION BY term ORDER BY block) - octet_length(tfs)) / %(half)s
    END AS part
    FROM taken
), merged AS (
    INSERT INTO postings (container_id, term, block, chunk_nos, tfs, lens)
    SELECT %(container_id)s, term, nextval('posting_blocks'), string_agg(chunk_nos, ''::bytea ORDER BY block),
           string_agg(tfs, ''::bytea ORDER BY block), string_agg(lens, ''::bytea ORDER BY block)
    FROM parted GROUP BY term, part ORDER BY term, part
    RETURNING 1
)
SELECT (SELECT count(*) FROM moved) AS moved, (SELECT count(*) FROM taken) AS taken,
       (SELECT count(*) FROM merged) AS merged
"""

RANGE: Final = """
SELECT ctid::text, chunk_nos, tfs, lens
FROM postings
WHERE container_id = %(container_id)s AND (term, block) > (%(term)s, %(block)s)
  AND (term, block) <= (%(end_term)s, %(end_block)s)
"""

# By row address, as a join by key is planned badly when statistics are young; the lock keeps it valid.
REPLACE: Final = """
UPDATE postings p SET chunk_nos = n.chunk_nos, tfs = n.tfs, lens = n.lens
FROM unnest(%(places)s::text[]::tid[], %(chunk_nos)s::bytea[], %(tfs)s::bytea[], %(lens)s::bytea[])
     AS n (place, chunk_nos, tfs, lens)
WHERE p.ctid = n.place
"""

REMOVE_EMPTY: Final = """
DELETE FROM postings
WHERE container_id = %(container_id)s AND (term, block) > (%(term)s, %(block)s)
  AND (term, block) <= (%(end_term)s, %(end_block)s) AND octet_length(tfs) = 0
"""

FORGET_DEAD: Final = (
    "DELETE FROM dead_chunk_nos WHERE container_id = %(container_id)s AND block = ANY(%(blocks)s)"
)

REMEMBER_DEAD: Final = """
INSERT INTO dead_chunk_nos (container_id, block, chunk_nos) VALUES (%(container_id)s, nextval('posting_blocks'), %(chunk_nos)s)
"""

SETTLE: Final = """
UPDATE keyword_stats
SET unmerged_writes = unmerged_writes - %(writes)s, unmerged_rows = unmerged_rows - %(rows)s,
    dead_chunks = dead_chunks - %(dropped)s
WHERE container_id = %(container_id)s
"""

STATE: Final = """
SELECT live_chunks, unmerged_writes, unmerged_rows, dead_chunks FROM keyword_stats WHERE container_id = %(container_id)s
"""


@dataclass(frozen=True, slots=True)
class CompactionReport:
    skipped: bool = False
    """Another run is active on this container."""
    rows_before: int = 0
    """Merged rows."""
    rows_after: int = 0
    """Rows after merging."""
    dropped_chunks: int = 0
    """Dead chunks that are removed completely."""
    transactions: int = 0


async def needed(conn: Connection, container_id: str, rules: CompactionRules = RULES) -> bool:
    """Whether a compaction is due; reads one row."""
    row = await (await conn.execute(STATE, {"container_id": container_id})).fetchone()
    return row is not None and rules.due(row)


async def compact(
    database: Database,
    container_id: str,
    checkpoint: Checkpoint,
    rules: CompactionRules = RULES,
) -> CompactionReport:
    """Compact one container in short transactions. ``checkpoint`` is called before each and may raise."""
    async with database.dedicated(name="compaction") as conn:
        cursor = conn.cursor(row_factory=tuple_row)
        await cursor.execute(TRY_LOCK, {"container_id": container_id})
        if await cursor.fetchone() != (True,):
            return CompactionReport(skipped=True)
        try:
            plan = await _plan(conn, container_id, rules)
            return (
                CompactionReport()
                if plan is None
                else await _CompactionRun(conn, plan, checkpoint).work()
            )
        finally:
            await release(conn, UNLOCK, {"container_id": container_id})


@dataclass(frozen=True, slots=True)
class _Plan:
    """The facts that a run reads at its start."""

    container_id: str
    rules: CompactionRules
    ceiling: int
    unmerged_writes: int
    dead_blocks: Sequence[int]
    dead: NDArray[np.uint32]
    purge: bool


@dataclass(slots=True)
class _CompactionRun:
    """One run, on the connection that holds the lock."""

    conn: Connection
    plan: _Plan
    checkpoint: Checkpoint
    rows_before: int = 0
    rows_after: int = 0
    moved: int = 0
    transactions: int = 0

    async def work(self) -> CompactionReport:
        await self._in_ranges(UNMERGED_END, self._merge)
        if self.plan.purge:
            await self._in_ranges(RANGE_END, self._purge)
        await self.checkpoint()
        async with self.conn.transaction():
            await self._settle()
        return CompactionReport(
            rows_before=self.rows_before,
            rows_after=self.rows_after,
            dropped_chunks=len(self.plan.dead) if self.plan.purge else 0,
            transactions=self.transactions + 1,
        )

    async def _in_ranges(self, find_end: str, step: Callable[[_Bounds], Awaitable[None]]) -> None:
        """Run ``step`` for each range of rows, in one transaction each."""
        rules = self.plan.rules
        limits = {"rows": rules.range_rows, "postings": rules.range_postings}
        bounds: _Bounds = {
            "container_id": self.plan.container_id,
            "ceiling": self.plan.ceiling,
            "term": "",
            "block": -1,
        }
        while True:
            await self.checkpoint()
            async with self.conn.transaction():
                end = await (await self.conn.execute(find_end, bounds | limits)).fetchone()
                if end is None:
                    return
                await step(bounds | {"end_term": end["term"], "end_block": end["block"]})
            bounds |= end
            self.transactions += 1

    async def _merge(self, bounds: _Bounds) -> None:
        parameters = {"ratio": self.plan.rules.merge_ratio, "half": ROW_POSTINGS // 2}
        cursor = await self.conn.execute(MERGE, bounds | parameters)
        async for row in cursor:
            self.rows_before += row["taken"]
            self.rows_after += row["merged"]
            self.moved += row["moved"]

    async def _purge(self, bounds: _Bounds) -> None:
        """Remove the postings of dead chunks from the rows of a range."""
        async with self.conn.cursor(row_factory=tuple_row, binary=True) as cursor:
            await cursor.execute(RANGE, bounds)
            rows = await cursor.fetchall()
        changed = await asyncio.to_thread(_without, self.plan.dead, rows)
        if changed is not None:
            await self.conn.execute(REPLACE, changed)
            await self.conn.execute(REMOVE_EMPTY, bounds)

    async def _settle(self) -> None:
        """Remove dead chunk_nos without postings, or pack the remaining ones into one row; statistics last."""
        plan, container = self.plan, {"container_id": self.plan.container_id}
        if plan.dead_blocks and (plan.purge or len(plan.dead_blocks) > 1):
            await self.conn.execute(FORGET_DEAD, {**container, "blocks": plan.dead_blocks})
            if not plan.purge:
                chunk_nos = plan.dead.astype("<u4").tobytes()
                await self.conn.execute(REMEMBER_DEAD, {**container, "chunk_nos": chunk_nos})
        done = {
            "writes": plan.unmerged_writes,
            "rows": self.moved,
            "dropped": len(plan.dead) if plan.purge else 0,
        }
        await self.conn.execute(SETTLE, container | done)


async def _plan(conn: Connection, container_id: str, rules: CompactionRules) -> _Plan | None:
    cursor = await conn.execute(BEGIN, {"container_id": container_id}, binary=True)
    row = await cursor.fetchone()
    if row is None:
        return None
    dead = np.sort(unpack_chunk_nos(row["dead_chunk_nos"]))
    return _Plan(
        container_id=container_id,
        rules=rules,
        ceiling=row["ceiling"],
        unmerged_writes=row["unmerged_writes"],
        dead_blocks=row["dead_blocks"],
        dead=dead,
        purge=rules.worth_purging(len(dead), row["live_chunks"]),
    )


def _without(
    dead: NDArray[np.uint32], rows: Sequence[tuple[str, bytes, bytes, bytes]]
) -> dict[str, list[Any]] | None:
    """Columns of the rows that refer to dead chunks, without those; None if no row does."""
    ends = np.cumsum([len(row[2]) for row in rows])
    hits = np.flatnonzero(np.isin(unpack_chunk_nos([row[1] for row in rows]), dead))
    if not len(hits):
        return None
    changed = [rows[place] for place in np.unique(np.searchsorted(ends, hits, side="right"))]
    kept = [_live(unpack([PackedPostings(*row[1:])]), dead) for row in changed]
    return {
        "places": [row[0] for row in changed],
        "chunk_nos": [packed.chunk_nos for packed in kept],
        "tfs": [packed.tfs for packed in kept],
        "lens": [packed.lens for packed in kept],
    }


def _live(postings: Postings, dead: NDArray[np.uint32]) -> PackedPostings:
    return postings.only(~np.isin(postings.chunk_nos, dead)).pack()


CHUNKS_PER_PAGE: Final = 2000

CHUNKS: Final = """
SELECT c.chunk_no, c.length, d.language, tsvector_to_array(c.tsv),
       ARRAY(SELECT cardinality(positions) FROM unnest(c.tsv))
FROM chunks c JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE c.container_id = %(container_id)s AND d.deleted_at IS NULL AND c.chunk_no > %(after)s
ORDER BY c.chunk_no LIMIT %(limit)s
"""

EMPTY: Final = """
INSERT INTO keyword_stats (container_id) VALUES (%(container_id)s) ON CONFLICT DO NOTHING
"""


async def rebuild(database: Database, container_id: str) -> int:
    """Write the index again from the chunks' term vectors, in one transaction that locks the container. Returns the
    number of chunks; 0 also if the container is gone. For repairs only: the long snapshot slows the queue."""
    total, after = 0, -1
    async with database.transaction() as conn:
        if not await seize(conn, container_id):
            return 0
        await postings.drop(conn, container_id)
        await conn.execute(EMPTY, {"container_id": container_id})
        while page := await terms_after(conn, container_id, after):
            await postings.write(conn, container_id, page)
            after, total = page[-1].chunk_no, total + len(page)
    return total


async def terms_after(conn: Connection, container_id: str, after: int) -> list[ChunkTerms]:
    """The next live chunks after chunk_no ``after`` by their term vectors, in order."""
    values = {"container_id": container_id, "after": after, "limit": CHUNKS_PER_PAGE}
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(CHUNKS, values)
        return [_terms(*row) for row in await cursor.fetchall()]


def _terms(
    chunk_no: int, length: int, language: str, terms: list[str], counts: list[int]
) -> ChunkTerms:
    return ChunkTerms(chunk_no, length, dict(zip(terms, counts, strict=True)), language)
