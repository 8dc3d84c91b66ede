"""Numbers for the plan of a changed manifest: how many stored documents a change concerns, and how long they took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from latent_core.db.connection import Connection, only_row

AMOUNTS: Final = """
SELECT d.source_type, count(*) AS documents, coalesce(sum(d.live_chunks), 0)::bigint AS chunks
FROM documents d
WHERE d.container_id = %(container_id)s AND d.deleted_at IS NULL AND d.live_generation IS NOT NULL
GROUP BY d.source_type
"""

# Of a sample: ids of documents are hashes, so the first ones are as good as any. A small container is counted exactly.
TEXTS: Final = """
SELECT coalesce(sum(c.windows), 0)::bigint AS texts, coalesce(sum(c.token_count), 0)::bigint AS tokens, count(*) AS chunks
FROM (SELECT id, live_generation FROM documents
      WHERE container_id = %(container_id)s AND deleted_at IS NULL AND live_generation IS NOT NULL AND live_chunks > 0
        AND source_type = ANY(%(source_types)s)
      ORDER BY id LIMIT %(limit)s) d
JOIN chunks c ON c.doc_id = d.id AND c.generation = d.live_generation
"""

# Jobs of the documents that were ingested last. A duration has reading, chunking and embedding in it.
READ_SECONDS: Final = """
SELECT count(*) AS jobs, avg(seconds) AS seconds
FROM (SELECT extract(epoch FROM finished_at - started_at)::float8 AS seconds
      FROM jobs
      WHERE container_id = %(container_id)s AND state = 'done' AND kind = 'ingest' AND started_at IS NOT NULL
      ORDER BY id DESC LIMIT %(limit)s) last
"""

EXPIRING: Final = """
SELECT count(*) AS documents FROM documents d
WHERE container_id = %(container_id)s AND parent_id IS NULL AND deleted_at IS NULL AND live_generation IS NOT NULL
  AND fetched_at < now() - make_interval(days => %(days)s)
"""

JOBS_MEASURED: Final = 200
SAMPLED: Final = 500


@dataclass(frozen=True, slots=True)
class DocumentAmounts:
    """Live documents of a type."""

    documents: int
    chunks: int


@dataclass(frozen=True, slots=True)
class ReadRate:
    """How long the documents that were ingested last took."""

    jobs: int
    seconds: float
    """Per document; 0 without any."""


async def amounts(conn: Connection, container_id: str) -> dict[str, DocumentAmounts]:
    """Live documents and their chunks by source type."""
    cursor = await conn.execute(AMOUNTS, {"container_id": container_id})
    return {
        row["source_type"] or "": DocumentAmounts(row["documents"], row["chunks"])
        for row in await cursor.fetchall()
    }


async def texts(
    conn: Connection, container_id: str, amounts: dict[str, DocumentAmounts]
) -> tuple[int, int]:
    """Texts for the embedder, and their tokens, of all live chunks of these types: scaled from ``SAMPLED`` documents, if
    there are more."""
    values = {"container_id": container_id, "source_types": sorted(amounts), "limit": SAMPLED}
    row = await only_row(await conn.execute(TEXTS, values))
    share = sum(one.chunks for one in amounts.values()) / max(1, row["chunks"])
    return round(row["texts"] * share), round(row["tokens"] * share)


async def read_rate(conn: Connection, container_id: str) -> ReadRate:
    values = {"container_id": container_id, "limit": JOBS_MEASURED}
    row = await only_row(await conn.execute(READ_SECONDS, values))
    return ReadRate(int(row["jobs"]), float(row["seconds"] or 0.0))


async def expiring(conn: Connection, container_id: str, days: int) -> int:
    """Documents that a limit of so many days would delete in the next hour."""
    values = {"container_id": container_id, "days": days}
    return int((await only_row(await conn.execute(EXPIRING, values)))["documents"])
