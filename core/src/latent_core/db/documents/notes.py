"""Rows of notes: their versions, and documents that newer ones replace."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from psycopg.rows import class_row

from latent_core.db.connection import Connection
from latent_core.domain.document import Author
from latent_core.domain.origin import Origin

# A note that does not exist yet has no row to lock.
ALONE: Final = "SELECT pg_advisory_xact_lock(hashtextextended(%(id)s::uuid::text, 7805))"

SELECT: Final = """
SELECT id, container_id, uri, mime, title, meta, origin, written_by, token_name, written_at, session, version,
       accepted_sha256, source_modified_at, superseded_by, superseded_at, deleted_at, request,
       EXISTS (SELECT 1 FROM documents s WHERE s.id = d.superseded_by AND s.deleted_at IS NULL) AS has_successor
FROM documents d WHERE id = ANY(%(ids)s) ORDER BY id FOR UPDATE
"""

# The text that waits to be ingested: a replacement must not lose it.
WAITING: Final = """
SELECT payload FROM jobs
WHERE doc_id = %(id)s AND kind = 'ingest' AND state IN ('queued', 'running', 'failed', 'cancelled')
  AND payload ->> 'sha256' = %(sha256)s
ORDER BY id DESC LIMIT 1
"""

ACCEPTED: Final = (
    "UPDATE documents SET version = %(version)s, accepted_sha256 = %(sha256)s WHERE id = %(id)s"
)

EXPIRY: Final = "UPDATE documents SET expires_at = %(expires_at)s WHERE id = %(id)s"

FORMER: Final = """
UPDATE documents
SET version = %(version)s, accepted_sha256 = %(sha256)s, written_at = %(written_at)s, superseded_by = %(by)s,
    superseded_at = now()
WHERE id = %(id)s
"""

POINT: Final = """
UPDATE documents SET superseded_by = %(by)s, superseded_request = %(request)s, superseded_at = NULL WHERE id = %(id)s
"""

# Not by the publication of an earlier text of the successor: if the one that names it fails, this one must be found.
PREDECESSORS: Final = """
SELECT d.id FROM documents d
JOIN unnest(%(ids)s::uuid[], %(requests)s::bigint[]) AS s (id, request) ON d.superseded_by = s.id
WHERE d.superseded_at IS NULL AND d.deleted_at IS NULL AND d.superseded_request <= s.request
ORDER BY d.id
"""

HIDE: Final = """
UPDATE documents SET superseded_at = now(), updated_at = now()
WHERE id = ANY(%(ids)s) AND superseded_by = ANY(%(by)s) AND superseded_at IS NULL AND deleted_at IS NULL
"""

VERSIONS: Final = """
SELECT id FROM documents
WHERE superseded_by = ANY(%(ids)s) AND deleted_at IS NULL AND uri ~ '^note:///.*\\?version=[0-9]+$'
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteRow:
    """The row of a document that a note replaces, in any state."""

    id: UUID
    container_id: str
    uri: str
    mime: str
    title: str | None
    meta: dict[str, Any]
    origin: str
    written_by: str | None
    token_name: str | None
    written_at: datetime
    session: str | None
    version: int
    accepted_sha256: str | None
    source_modified_at: datetime | None
    superseded_by: UUID | None
    superseded_at: datetime | None
    deleted_at: datetime | None
    request: int
    has_successor: bool
    """Whether the document that supersedes it exists."""

    @property
    def author(self) -> Author | None:
        if self.written_by is None:
            return None
        return Author(Origin(self.origin), self.written_by, self.token_name, self.session)


async def locked(conn: Connection, ids: Sequence[UUID], name: UUID) -> dict[UUID, NoteRow]:
    """The rows, locked in id order; ``name`` is locked even without a row."""
    await conn.execute(ALONE, {"id": name})
    async with conn.cursor(row_factory=class_row(NoteRow)) as cursor:
        await cursor.execute(SELECT, {"ids": sorted(ids)})
        return {row.id: row for row in await cursor.fetchall()}


CURRENT: Final = """
SELECT version, accepted_sha256, mime FROM documents
WHERE id = %(id)s AND deleted_at IS NULL AND accepted_sha256 IS NOT NULL
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentText:
    """The newest accepted content of a name."""

    version: int
    accepted_sha256: str
    mime: str


async def current(conn: Connection, doc_id: UUID) -> CurrentText | None:
    async with conn.cursor(row_factory=class_row(CurrentText)) as cursor:
        await cursor.execute(CURRENT, {"id": doc_id})
        return await cursor.fetchone()


async def waiting(conn: Connection, doc_id: UUID, sha256: str) -> dict[str, Any] | None:
    """The payload of the job that has yet to ingest that text; None if the text is live."""
    row = await (await conn.execute(WAITING, {"id": doc_id, "sha256": sha256})).fetchone()
    return row["payload"] if row else None


async def note_accepted(conn: Connection, doc_id: UUID, version: int, sha256: str) -> None:
    """Record the newest text, whose bytes are kept from now on."""
    await conn.execute(ACCEPTED, {"id": doc_id, "version": version, "sha256": sha256})


async def set_expiry(conn: Connection, doc_id: UUID, expires_at: datetime | None) -> None:
    await conn.execute(EXPIRY, {"id": doc_id, "expires_at": expires_at})


async def note_former(
    conn: Connection, doc_id: UUID, *, version: int, sha256: str, written_at: datetime, by: UUID
) -> None:
    """Record a former text, which is out of search from the beginning."""
    values = {
        "id": doc_id,
        "version": version,
        "sha256": sha256,
        "written_at": written_at,
        "by": by,
    }
    await conn.execute(FORMER, values)


async def point(conn: Connection, doc_id: UUID, by: UUID, request: int) -> None:
    """Name the successor; ``hide`` takes the document out of search when that request is published."""
    await conn.execute(POINT, {"id": doc_id, "by": by, "request": request})


async def predecessors(conn: Connection, requests: Mapping[UUID, int]) -> list[UUID]:
    """Documents that go out of search when these requests of documents are published."""
    values = {"ids": list(requests), "requests": list(requests.values())}
    cursor = await conn.execute(PREDECESSORS, values)
    return [row["id"] for row in await cursor.fetchall()]


async def hide(conn: Connection, doc_ids: Sequence[UUID], by: Collection[UUID]) -> None:
    """Take ``doc_ids`` out of search whose successor is among ``by``. Lock them first."""
    await conn.execute(HIDE, {"ids": list(doc_ids), "by": list(by)})


async def versions(conn: Connection, doc_ids: Sequence[UUID]) -> list[UUID]:
    """The former texts of these notes."""
    cursor = await conn.execute(VERSIONS, {"ids": list(doc_ids)})
    return [row["id"] for row in await cursor.fetchall()]
