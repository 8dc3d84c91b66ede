"""Numbers for the plan of a changed manifest: how many stored documents a change concerns, and how long they took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from latent_core.db.connection import Connection, only_row

AMOUNTS: Final = """
SELECT d.source_type, count(*) AS documents, coalesce(sum(d.live_chunks), 0)::bigint AS chunks
FROM documents d
WHERE d.container_id = %(container_id)s AND d.deleted_at IS NULL AND d.live_generation IS NOT NULL
GROUP BY d.source_type
"""

TEXTS: Final = """
SELECT coalesce(sum(c.windows), 0)::bigint AS texts, coalesce(sum(c.token_count), 0)::bigint AS tokens
FROM chunks c JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE c.container_id = %(container_id)s AND d.deleted_at IS NULL AND d.source_type = ANY(%(source_types)s)
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
    conn: Connection, container_id: str, source_types: Sequence[str]
) -> tuple[int, int]:
    """Texts for the embedder, and their tokens, of all live chunks of these types."""
    values = {"container_id": container_id, "source_types": list(source_types)}
    row = await only_row(await conn.execute(TEXTS, values))
    return int(row["texts"]), int(row["tokens"])


async def read_rate(conn: Connection, container_id: str) -> ReadRate:
    values = {"container_id": container_id, "limit": JOBS_MEASURED}
    row = await only_row(await conn.execute(READ_SECONDS, values))
    return ReadRate(int(row["jobs"]), float(row["seconds"] or 0.0))


async def expiring(conn: Connection, container_id: str, days: int) -> int:
    """Documents that a limit of so many days would delete in the next hour."""
    values = {"container_id": container_id, "days": days}
    return int((await only_row(await conn.execute(EXPIRING, values)))["documents"])
