"""The log of queries of containers whose manifest asks for it. It says nothing of who searched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from latent_core.db.connection import Connection
from latent_core.wire.queries import WEAK_BELOW, LoggedQuery, QueryKind

MAX_ROWS: Final = 100_000
"""Kept of a container; maintenance removes older ones."""
MAX_READ: Final = 50_000
"""Newest rows of a container that a list is made of."""
ROWS_PER_DELETION: Final = 50_000

# A container that was deleted, or whose log was switched off, gets nothing.
INSERT: Final = """
INSERT INTO query_log (container_id, at, query, mode, filtered, containers, hits, all_hits, relevance)
SELECT c.id, given.at, given.query, given.mode, given.filtered, given.containers, given.hits, given.all_hits,
       given.relevance
FROM unnest(%(container_ids)s::text[], %(ats)s::timestamptz[], %(queries)s::text[], %(modes)s::text[],
            %(filtered)s::boolean[], %(containers)s::integer[], %(hits)s::integer[], %(all_hits)s::integer[],
            %(relevances)s::real[])
     AS given (container_id, at, query, mode, filtered, containers, hits, all_hits, relevance)
JOIN containers c ON c.id = given.container_id
WHERE c.deleted_at IS NULL AND c.manifest #>> '{query_log,keep_days}' IS NOT NULL
"""

# Equal queries are one line, in the words of the last of them. What the last answer was decides the kind.
SUMMARY: Final = """
WITH recent AS (
    SELECT id, at, query, mode, filtered, hits, all_hits, relevance FROM query_log
    WHERE container_id = %(container_id)s AND at >= now() - make_interval(days => %(days)s)
    ORDER BY id DESC LIMIT %(read)s
), last AS (
    SELECT DISTINCT ON (lower(query)) lower(query) AS folded, at, query, mode, hits, all_hits, relevance
    FROM recent WHERE NOT filtered OR %(kind)s = 'frequent'
    ORDER BY lower(query), id DESC
), counted AS (
    SELECT lower(query) AS folded, count(*) AS times FROM recent
    WHERE NOT filtered OR %(kind)s = 'frequent'
    GROUP BY lower(query)
)
SELECT l.query, l.mode, l.at AS last_at, l.hits, l.all_hits, l.relevance, c.times,
       EXISTS (SELECT 1 FROM golden_queries g WHERE g.container_id = %(container_id)s
               AND md5(g.query) = md5(l.query) AND g.query = l.query) AS golden
FROM last l JOIN counted c USING (folded)
WHERE CASE %(kind)s WHEN 'without_hits' THEN l.all_hits = 0
                    WHEN 'weak' THEN l.all_hits > 0 AND l.relevance < %(weak)s
                    ELSE true END
ORDER BY c.times DESC, l.at DESC
LIMIT %(limit)s
"""

COUNT: Final = """
SELECT count(*) AS queries, min(at) AS since FROM (
    SELECT at FROM query_log
    WHERE container_id = %(container_id)s AND at >= now() - make_interval(days => %(days)s)
    ORDER BY id DESC LIMIT %(read)s) recent
"""

CLEAR: Final = "DELETE FROM query_log WHERE container_id = %(container_id)s"

FORGET: Final = """
DELETE FROM query_log WHERE id IN (
    SELECT q.id FROM query_log q JOIN containers c ON c.id = q.container_id
    WHERE c.manifest #>> '{query_log,keep_days}' IS NULL
       OR q.at < now() - make_interval(days => (c.manifest #>> '{query_log,keep_days}')::integer)
    ORDER BY q.id
    LIMIT %(limit)s)
"""

BEYOND: Final = """
DELETE FROM query_log q USING (
    SELECT c.id, (SELECT id FROM query_log WHERE container_id = c.id ORDER BY id DESC OFFSET %(rows)s LIMIT 1) AS last
    FROM containers c WHERE c.manifest #>> '{query_log,keep_days}' IS NOT NULL) beyond
WHERE q.container_id = beyond.id AND q.id <= beyond.last
"""


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """One search of one container, as the log keeps it."""

    container_id: str
    at: datetime
    query: str
    mode: str
    filtered: bool
    containers: int
    hits: int
    all_hits: int
    relevance: float | None


@dataclass(frozen=True, slots=True)
class LogSummary:
    queries: int
    """That the lists are made of."""
    since: datetime | None
    """The first of them."""
    lines: list[LoggedQuery]


async def insert(conn: Connection, records: Sequence[QueryRecord]) -> None:
    """Store records of containers that exist and have a log."""
    await conn.execute(
        INSERT,
        {
            "container_ids": [record.container_id for record in records],
            "ats": [record.at for record in records],
            "queries": [record.query for record in records],
            "modes": [record.mode for record in records],
            "filtered": [record.filtered for record in records],
            "containers": [record.containers for record in records],
            "hits": [record.hits for record in records],
            "all_hits": [record.all_hits for record in records],
            "relevances": [record.relevance for record in records],
        },
    )


async def summary(
    conn: Connection, container_id: str, kind: QueryKind, *, days: int, limit: int
) -> LogSummary:
    """The queries of the last ``days`` of that kind, the most frequent first."""
    values = {"container_id": container_id, "days": days, "read": MAX_READ}
    counted = await (await conn.execute(COUNT, values)).fetchone() or {}
    given = {**values, "kind": kind.value, "weak": WEAK_BELOW, "limit": limit}
    rows = await (await conn.execute(SUMMARY, given)).fetchall()
    return LogSummary(
        counted.get("queries", 0),
        counted.get("since"),
        [LoggedQuery.model_validate(row) for row in rows],
    )


async def clear(conn: Connection, container_id: str) -> int:
    """Delete the log of a container; returns the number of entries."""
    return (await conn.execute(CLEAR, {"container_id": container_id})).rowcount


async def forget(conn: Connection) -> int:
    """Delete entries that are older than their container keeps them, or beyond its limit; returns their number."""
    old = (await conn.execute(FORGET, {"limit": ROWS_PER_DELETION})).rowcount
    return old + (await conn.execute(BEYOND, {"rows": MAX_ROWS})).rowcount
