"""Golden queries of containers. Every change gives the set a new version, by which writers notice each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from psycopg.types.json import Jsonb

from latent_core.db.connection import Connection
from latent_core.domain.golden import EXPECTED, GoldenQuery, GoldenSet, Thresholds

NONE: Final = 0
"""The version of a container without golden queries, also before it ever had some."""

VERSION: Final = "SELECT thresholds, version FROM golden_sets WHERE container_id = %(container_id)s"

COUNT: Final = (
    "SELECT count(*) AS queries FROM golden_queries WHERE container_id = %(container_id)s"
)

PAGE: Final = """
SELECT id, position, query, expected, version FROM golden_queries
WHERE container_id = %(container_id)s AND position > %(after)s
ORDER BY position
LIMIT %(limit)s
"""

ONE: Final = """
SELECT id, position, query, expected, version FROM golden_queries
WHERE container_id = %(container_id)s AND id = %(id)s
"""

SAME: Final = """
SELECT id, position, query, expected, version FROM golden_queries
WHERE container_id = %(container_id)s AND md5(query) = md5(%(query)s) AND query = %(query)s
ORDER BY position
LIMIT 1
"""

# Locks the set until the transaction ends.
BEGIN: Final = """
INSERT INTO golden_sets (container_id, changed_by) VALUES (%(container_id)s, %(principal)s)
ON CONFLICT (container_id) DO UPDATE
SET version = golden_sets.version + 1, changed_by = excluded.changed_by, changed_at = now()
RETURNING version
"""

THRESHOLDS: Final = """
UPDATE golden_sets SET thresholds = %(thresholds)s WHERE container_id = %(container_id)s
"""

CLEAR: Final = "DELETE FROM golden_queries WHERE container_id = %(container_id)s"

INSERT: Final = """
INSERT INTO golden_queries (container_id, id, position, query, expected, version)
VALUES (%(container_id)s, %(id)s, %(position)s, %(query)s, %(expected)s, %(version)s)
"""

UPDATE: Final = """
UPDATE golden_queries SET query = %(query)s, expected = %(expected)s, version = %(version)s
WHERE container_id = %(container_id)s AND id = %(id)s
"""

DELETE: Final = "DELETE FROM golden_queries WHERE container_id = %(container_id)s AND id = %(id)s"

LAST: Final = """
SELECT coalesce(max(position), 0) AS position, count(*) AS queries
FROM golden_queries WHERE container_id = %(container_id)s
"""

TAKEN: Final = """
SELECT id FROM golden_queries WHERE container_id = %(container_id)s AND id = ANY(%(ids)s)
"""

WITHOUT: Final = """
SELECT c.id FROM containers c
WHERE c.deleted_at IS NULL AND NOT EXISTS (SELECT 1 FROM golden_sets g WHERE g.container_id = c.id)
ORDER BY c.id
"""


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """A golden query with its place in the set, and the version of the set when it last changed."""

    query: GoldenQuery
    position: int
    version: int


@dataclass(frozen=True, slots=True)
class SetState:
    version: int
    thresholds: Thresholds
    queries: int


async def state(conn: Connection, container_id: str) -> SetState:
    """The version, thresholds and number of queries."""
    values = {"container_id": container_id}
    row = await (await conn.execute(VERSION, values)).fetchone()
    if row is None:
        return SetState(NONE, Thresholds(), 0)
    counted = await (await conn.execute(COUNT, values)).fetchone()
    return SetState(
        row["version"],
        Thresholds.model_validate(row["thresholds"]),
        counted["queries"] if counted else 0,
    )


async def page(conn: Connection, container_id: str, *, after: int, limit: int) -> list[StoredQuery]:
    """Queries behind the position ``after``, in the order of the set."""
    values = {"container_id": container_id, "after": after, "limit": limit}
    return [_stored(row) for row in await (await conn.execute(PAGE, values)).fetchall()]


async def one(conn: Connection, container_id: str, query_id: str) -> StoredQuery | None:
    row = await (await conn.execute(ONE, {"container_id": container_id, "id": query_id})).fetchone()
    return _stored(row) if row else None


async def same(conn: Connection, container_id: str, query: str) -> StoredQuery | None:
    """The first query with exactly this text."""
    values = {"container_id": container_id, "query": query}
    row = await (await conn.execute(SAME, values)).fetchone()
    return _stored(row) if row else None


async def read(conn: Connection, container_id: str, limit: int | None = None) -> GoldenSet | None:
    """The whole set, or its first ``limit`` queries; None without a query."""
    found = await state(conn, container_id)
    if not found.queries:
        return None
    queries = await page(conn, container_id, after=0, limit=limit or found.queries)
    return GoldenSet(queries=[one.query for one in queries], thresholds=found.thresholds)


async def begin(conn: Connection, container_id: str, principal: str) -> int:
    """Lock the set against other changes until the transaction ends; returns the version of this change."""
    values = {"container_id": container_id, "principal": principal}
    row = await (await conn.execute(BEGIN, values)).fetchone()
    if row is None:
        raise RuntimeError("INSERT … RETURNING returned no row")
    return int(row["version"])


async def replace(
    conn: Connection, container_id: str, golden: GoldenSet | None, version: int
) -> None:
    """All queries and thresholds; None: neither. The set is locked."""
    queries = golden.queries if golden is not None else []
    thresholds = golden.thresholds if golden is not None else Thresholds()
    shown = thresholds.model_dump(by_alias=True, exclude_none=True)
    values = {"container_id": container_id}
    await conn.execute(THRESHOLDS, {**values, "thresholds": Jsonb(shown)})
    await conn.execute(CLEAR, values)
    rows = [
        _row(container_id, query, version) | {"position": position}
        for position, query in enumerate(queries, start=1)
    ]
    if rows:
        async with conn.cursor() as cursor:
            await cursor.executemany(INSERT, rows)


async def add(conn: Connection, container_id: str, query: GoldenQuery, version: int) -> StoredQuery:
    """A query at the end of the locked set; one without an id gets the next free one."""
    last = await (await conn.execute(LAST, {"container_id": container_id})).fetchone()
    position = (last["position"] if last else 0) + 1
    if not query.id:
        free = await _free_id(conn, container_id, position, last["queries"] if last else 0)
        query = query.model_copy(update={"id": free})
    row = _row(container_id, query, version)
    await conn.execute(INSERT, {**row, "position": position})
    return StoredQuery(query, position, version)


async def _free_id(conn: Connection, container_id: str, first: int, queries: int) -> str:
    candidates = [f"q{number}" for number in range(first, first + queries + 1)]
    values = {"container_id": container_id, "ids": candidates}
    taken = {row["id"] for row in await (await conn.execute(TAKEN, values)).fetchall()}
    return next(name for name in candidates if name not in taken)


async def change(conn: Connection, container_id: str, query: GoldenQuery, version: int) -> None:
    """The query with this id in the locked set."""
    await conn.execute(UPDATE, _row(container_id, query, version))


async def remove(conn: Connection, container_id: str, query_id: str) -> bool:
    """False if there is no such query in the locked set."""
    values = {"container_id": container_id, "id": query_id}
    return (await conn.execute(DELETE, values)).rowcount == 1


async def containers_without(conn: Connection) -> list[str]:
    """Containers that never had golden queries here."""
    return [row["id"] for row in await (await conn.execute(WITHOUT)).fetchall()]


def _row(container_id: str, query: GoldenQuery, version: int) -> dict[str, Any]:
    expected = query.model_dump(mode="json", include=set(EXPECTED), exclude_defaults=True)
    return {
        "container_id": container_id,
        "id": query.id,
        "query": query.query,
        "expected": Jsonb(expected),
        "version": version,
    }


def _stored(row: dict[str, Any]) -> StoredQuery:
    query = GoldenQuery.model_validate({"id": row["id"], "query": row["query"], **row["expected"]})
    return StoredQuery(query, row["position"], row["version"])
