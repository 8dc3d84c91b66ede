"""The ingests of a document, newest first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from psycopg.rows import class_row

from latent_core.db.connection import Connection

INGESTS: Final = """
SELECT j.id AS job_id, j.state, j.principal, j.created_at, j.finished_at, j.cause ->> 'message' AS cause
FROM jobs j
WHERE j.doc_id = %(doc_id)s AND j.kind IN ('ingest', 'corpus')
ORDER BY j.id DESC
LIMIT %(limit)s
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestRow:
    job_id: int
    state: str
    principal: str
    created_at: datetime
    finished_at: datetime | None
    cause: str | None


async def ingests(conn: Connection, doc_id: UUID, limit: int) -> list[IngestRow]:
    """Those whose jobs are still recorded."""
    values: dict[str, Any] = {"doc_id": doc_id, "limit": limit}
    async with conn.cursor(row_factory=class_row(IngestRow)) as cursor:
        await cursor.execute(INGESTS, values)
        return await cursor.fetchall()
