"""Compaction: few long posting rows instead of many short ones, and none of dead chunks.

A publication writes one small row a term, so a frequent term soon has as many rows as there were
publications. ``compact`` merges the rows of each term by size (``Rules.merge_ratio``): a term keeps a handful
of rows, each much longer than all shorter ones together, and a posting is rewritten a logarithmic
number of times. Where much is dead, all rows are read once and dead postings dropped (``_purge``).

Why this is correct while others publish, bury and search:

- *Searches* read stats, dead ords and postings in one statement, so in one snapshot. A step here is one
  transaction that replaces rows by rows with the same live postings: before and after it, any snapshot
  holds each live posting exactly once.
- *Publications* only insert rows; *burials* only insert dead ords. Posting rows are deleted here and by
  ``drop_batch`` alone, and a session lock (advisory, by container) keeps all of these apart. The work is
  done on the connection that holds the lock: losing one is losing both. Who else writes is not waited
  for, except at the stats row, which is taken last and held for one short transaction.
- *Dead ords are forgotten only when no posting names them.* The run takes its list of dead ords D, then a
  ``ceiling`` from the sequence of blocks. A chunk is buried after its publication was committed, so all
  posting rows naming an ord of D were committed before D was read, and have blocks below the ceiling
  (the sequence grows; the other writer of rows, a compaction, is locked out). The run visits every row
  below the ceiling in (term, block) order; a row it writes itself has either lost its dead ords (purged
  in place, same block) or is merged from rows purged in the same transaction. So after the last range
  no row names an ord of D, and exactly D is removed from ``dead_ords``, in the last transaction.
- *A run that ends early* (checkpoint, crash) has removed postings of dead chunks, but no dead ord: the
  next run begins anew with the same D and more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from psycopg.rows import tuple_row

from latent_core.keywords.packing import ROW_POSTINGS, Packed, Postings, unpack, unpack_ords
from latent_core.registry.connection import Connection, Database


@dataclass(frozen=True, slots=True)
class Rules:
    """When to compact, and how much at a time."""

    range_rows: int = 50_000
    range_postings: int = 4_000_000
    """Of one transaction: about 28 MB."""
    merge_ratio: int = 3
    """A row joins those that are shorter unless it is so many times longer than all of them together."""
    loose_writes: int = 64
    """Publications and deletions after which a compaction is due: a query then reads so many more rows a term."""
    loose_share: int = 2048
    """In a large container a run costs more (all rows are looked at): one write in so many live chunks."""
    dead_chunks: int = 256
    dead_share: int = 8
    """Dead chunks are dropped when there are so many, and one for every so many live ones."""

    def are_loose(self, writes: int, live: int) -> bool:
        return writes >= max(self.loose_writes, live // self.loose_share)

    def worth_purging(self, dead: int, live: int) -> bool:
        return dead >= self.dead_chunks and dead * self.dead_share >= live


RULES: Final = Rules()

TRY_LOCK: Final = "SELECT pg_try_advisory_lock(hashtextextended(%(container_id)s, 7802))"

# The ceiling is taken after the snapshot of this statement: above every block it sees.
BEGIN: Final = """
SELECT nextval('posting_blocks') AS ceiling, s.live_chunks, s.loose_writes,
       ARRAY(SELECT block FROM dead_ords WHERE container_id = %(container_id)s ORDER BY block) AS dead_blocks,
       ARRAY(SELECT ords FROM dead_ords WHERE container_id = %(container_id)s ORDER BY block) AS dead_ords
FROM keyword_stats s WHERE s.container_id = %(container_id)s
"""

# The last row of the next range: bounded by rows, and by postings unless one row alone has more.
RANGE_END: Final = """
SELECT term, block
FROM (
    SELECT term, block, sum(n) OVER (ORDER BY term, block) - n AS before
    FROM (
        SELECT term, block, octet_length(tfs) AS n
        FROM postings
        WHERE container_id = %(container_id)s AND (term, block) > (%(term)s, %(block)s) AND block < %(ceiling)s
        ORDER BY term, block
        LIMIT %(rows)s
    ) page
) counted
WHERE before < %(postings)s
ORDER BY term DESC, block DESC
LIMIT 1
"""

# Of each term in the range, shortest first, the rows up to the first that is too long to join.
MERGE: Final = """
WITH sized AS MATERIALIZED (
    SELECT ctid AS place, term, octet_length(tfs) AS n,
           sum(octet_length(tfs)) OVER (PARTITION BY term ORDER BY octet_length(tfs), block) AS total,
           row_number() OVER (PARTITION BY term ORDER BY octet_length(tfs), block) AS position
    FROM postings
    WHERE container_id = %(container_id)s AND (term, block) > (%(term)s, %(block)s)
      AND (term, block) <= (%(end_term)s, %(end_block)s) AND block < %(ceiling)s
), judged AS (
    SELECT place, term, bool_or((position > 1 AND n > %(ratio)s * (total - n)) OR total > %(most)s)
           OVER (PARTITION BY term ORDER BY position) AS apart
    FROM sized
), chosen AS (
    SELECT place, count(*) OVER (PARTITION BY term) AS companions FROM judged WHERE NOT apart
), gone AS (
    DELETE FROM postings
    WHERE ctid = ANY (ARRAY(SELECT place FROM chosen WHERE companions > 1))
    RETURNING term, block, ords, tfs, lens
), merged AS (
    INSERT INTO postings (container_id, term, block, ords, tfs, lens)
    SELECT %(container_id)s, term, nextval('posting_blocks'), string_agg(ords, ''::bytea ORDER BY block),
           string_agg(tfs, ''::bytea ORDER BY block), string_agg(lens, ''::bytea ORDER BY block)
    FROM gone GROUP BY term ORDER BY term
    RETURNING 1
)
SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM merged)
"""

RANGE: Final = """
SELECT ctid::text, ords, tfs, lens
FROM postings
WHERE container_id = %(container_id)s AND (term, block) > (%(term)s, %(block)s)
  AND (term, block) <= (%(end_term)s, %(end_block)s) AND block < %(ceiling)s
"""

# By row address, as a join by key is planned badly when statistics are young; the lock keeps it valid.
REPLACE: Final = """
UPDATE postings p SET ords = n.ords, tfs = n.tfs, lens = n.lens
FROM unnest(%(places)s::text[]::tid[], %(ords)s::bytea[], %(tfs)s::bytea[], %(lens)s::bytea[])
     AS n (place, ords, tfs, lens)
WHERE p.ctid = n.place
"""

REMOVE_EMPTY: Final = """
DELETE FROM postings
WHERE container_id = %(container_id)s AND (term, block) > (%(term)s, %(block)s)
  AND (term, block) <= (%(end_term)s, %(end_block)s) AND block < %(ceiling)s AND octet_length(tfs) = 0
"""

FORGET_DEAD: Final = (
    "DELETE FROM dead_ords WHERE container_id = %(container_id)s AND block = ANY(%(blocks)s)"
)

REMEMBER_DEAD: Final = """
INSERT INTO dead_ords (container_id, block, ords) VALUES (%(container_id)s, nextval('posting_blocks'), %(ords)s)
"""

SETTLE: Final = """
UPDATE keyword_stats
SET loose_writes = loose_writes - %(loose)s, dead_chunks = dead_chunks - %(dropped)s
WHERE container_id = %(container_id)s
"""

STATE: Final = "SELECT live_chunks, loose_writes, dead_chunks FROM keyword_stats WHERE container_id = %(container_id)s"


@dataclass(frozen=True, slots=True)
class CompactionReport:
    skipped: bool = False
    """Another compaction of this container is running."""
    rows_before: int = 0
    """Rows that were merged."""
    rows_after: int = 0
    """Rows they became."""
    dropped_chunks: int = 0
    """Dead chunks of which nothing is left."""
    transactions: int = 0


async def needed(conn: Connection, container_id: str, rules: Rules = RULES) -> bool:
    """Whether a compaction is due; one row is read."""
    row = await (await conn.execute(STATE, {"container_id": container_id})).fetchone()
    if row is None:
        return False
    live = row["live_chunks"]
    return rules.are_loose(row["loose_writes"], live) or rules.worth_purging(
        row["dead_chunks"], live
    )


async def compact(
    database: Database,
    container_id: str,
    checkpoint: Callable[[], Awaitable[None]],
    rules: Rules = RULES,
) -> CompactionReport:
    """Compact one container in short transactions. ``checkpoint`` is asked before each, and may raise."""
    async with database.dedicated(name="compaction") as conn:
        cursor = conn.cursor(row_factory=tuple_row)
        await cursor.execute(TRY_LOCK, {"container_id": container_id})
        if await cursor.fetchone() != (True,):
            return CompactionReport(skipped=True)
        # The lock ends with the connection, which ends with this block.
        return await _run(conn, container_id, checkpoint, rules)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a run found at its start."""

    container_id: str
    rules: Rules
    ceiling: int
    loose_writes: int
    dead_blocks: Sequence[int]
    dead: NDArray[np.uint32]
    purge: bool


async def _run(
    conn: Connection,
    container_id: str,
    checkpoint: Callable[[], Awaitable[None]],
    rules: Rules,
) -> CompactionReport:
    plan = await _plan(conn, container_id, rules)
    report = CompactionReport()
    if plan is None:
        return report
    after: dict[str, Any] | None = {"term": "", "block": -1}
    while after is not None:
        await checkpoint()
        async with conn.transaction():
            after, report = await _step(conn, plan, after, report)
    await checkpoint()
    async with conn.transaction():
        await _settle(conn, plan)
    return replace(report, dropped_chunks=len(plan.dead) if plan.purge else 0)


async def _plan(conn: Connection, container_id: str, rules: Rules) -> _Plan | None:
    cursor = await conn.execute(BEGIN, {"container_id": container_id}, binary=True)
    row = await cursor.fetchone()
    if row is None:
        return None
    dead = np.sort(unpack_ords(row["dead_ords"]))
    return _Plan(
        container_id=container_id,
        rules=rules,
        ceiling=row["ceiling"],
        loose_writes=row["loose_writes"],
        dead_blocks=row["dead_blocks"],
        dead=dead,
        purge=rules.worth_purging(len(dead), row["live_chunks"]),
    )


async def _step(
    conn: Connection, plan: _Plan, after: dict[str, Any], report: CompactionReport
) -> tuple[dict[str, Any] | None, CompactionReport]:
    """Compact the next range; the place to go on from, or None at the end."""
    bounds = {"container_id": plan.container_id, "ceiling": plan.ceiling, **after}
    cursor = conn.cursor(row_factory=tuple_row)
    rules = plan.rules
    await cursor.execute(
        RANGE_END, {**bounds, "rows": rules.range_rows, "postings": rules.range_postings}
    )
    end = await cursor.fetchone()
    if end is None:
        return None, report
    bounds |= {"end_term": end[0], "end_block": end[1]}
    if plan.purge:
        await _purge(conn, plan, bounds)
    await cursor.execute(MERGE, {**bounds, "ratio": rules.merge_ratio, "most": ROW_POSTINGS})
    before, merged = await cursor.fetchone() or (0, 0)
    report = replace(
        report,
        rows_before=report.rows_before + before,
        rows_after=report.rows_after + merged,
        transactions=report.transactions + 1,
    )
    return {"term": end[0], "block": end[1]}, report


async def _purge(conn: Connection, plan: _Plan, bounds: dict[str, Any]) -> None:
    """Take the postings of dead chunks out of the rows of a range, in place."""
    async with conn.cursor(row_factory=tuple_row, binary=True) as cursor:
        await cursor.execute(RANGE, bounds)
        rows = await cursor.fetchall()
    changed = await asyncio.to_thread(_without, plan.dead, rows)
    if changed is not None:
        await conn.execute(REPLACE, changed)
        await conn.execute(REMOVE_EMPTY, bounds)


def _without(
    dead: NDArray[np.uint32], rows: Sequence[tuple[str, bytes, bytes, bytes]]
) -> dict[str, list[Any]] | None:
    """Columns of the rows that name dead chunks, without those; None when no row does."""
    ends = np.cumsum([len(row[2]) for row in rows])
    hits = np.flatnonzero(np.isin(unpack_ords([row[1] for row in rows]), dead))
    if not len(hits):
        return None
    changed = [rows[place] for place in np.unique(np.searchsorted(ends, hits, side="right"))]
    kept = [_live(unpack([Packed(*row[1:])]), dead) for row in changed]
    return {
        "places": [row[0] for row in changed],
        "ords": [packed.ords for packed in kept],
        "tfs": [packed.tfs for packed in kept],
        "lens": [packed.lens for packed in kept],
    }


def _live(postings: Postings, dead: NDArray[np.uint32]) -> Packed:
    return postings.only(~np.isin(postings.ords, dead)).pack()


async def _settle(conn: Connection, plan: _Plan) -> None:
    """Forget the dead ords that no posting names any more, or pack them into one row; the hot row last."""
    if plan.dead_blocks and (plan.purge or len(plan.dead_blocks) > 1):
        forget = {"container_id": plan.container_id, "blocks": plan.dead_blocks}
        await conn.execute(FORGET_DEAD, forget)
        if not plan.purge:
            ords = plan.dead.astype("<u4").tobytes()
            await conn.execute(REMEMBER_DEAD, {"container_id": plan.container_id, "ords": ords})
    dropped = len(plan.dead) if plan.purge else 0
    await conn.execute(
        SETTLE, {"container_id": plan.container_id, "loose": plan.loose_writes, "dropped": dropped}
    )
