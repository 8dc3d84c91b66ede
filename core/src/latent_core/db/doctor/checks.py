"""Queries of the doctor: the state in the rows, read in bounded pages and short transactions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, LiteralString, TypeVar
from uuid import UUID

from psycopg.rows import class_row

from latent_core.db.connection import Connection, Database
from latent_core.db.session_locks import release
from latent_core.domain.errors import Conflict

Row = TypeVar("Row")

COUNTS: Final = """
SELECT (SELECT count(*) FROM documents WHERE container_id = %(id)s AND deleted_at IS NULL
        AND live_generation IS NOT NULL) AS documents,
       (SELECT count(*) FROM documents WHERE container_id = %(id)s AND deleted_at IS NULL
        AND live_generation IS NULL) AS pending_documents,
       (SELECT count(*) FROM chunks c JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
        WHERE c.container_id = %(id)s AND d.deleted_at IS NULL) AS chunks,
       (SELECT coalesce(sum(coalesce(n.windows, c.windows)), 0)::bigint FROM chunks c
        JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
        LEFT JOIN point_counts n ON n.container_id = c.container_id AND n.chunk_no = c.chunk_no AND n.collection_id = %(collection_id)s
        WHERE c.container_id = %(id)s AND d.deleted_at IS NULL) AS points_expected,
       (SELECT count(*) FROM jobs WHERE container_id = %(id)s AND state = 'failed') AS failed_jobs,
       (SELECT count(*) FROM jobs WHERE container_id = %(id)s AND state IN ('queued', 'running')) AS open_jobs
"""

# Documents that an import accepted become live by its commit and have no other job. A dead letter counts until a newer
# publication or deletion overtakes it. A publication sets ``sha256``, a deletion clears it.
PENDING_WITHOUT_JOB: Final = """
SELECT d.id, d.uri,
       d.accepted_sha256 IS NOT NULL OR d.sha256 IS NOT NULL AND EXISTS (
           SELECT 1 FROM documents o JOIN blob_refs r ON r.doc_id = o.id AND r.role = 'original'
           WHERE o.id = coalesce(d.parent_id, d.id) AND o.deleted_at IS NULL
             AND (r.generation = o.live_generation OR o.live_generation IS NULL AND r.sha256 = o.sha256)) AS has_original
FROM documents d
WHERE d.container_id = %(id)s AND d.deleted_at IS NULL AND d.live_generation IS NULL
  AND (%(ids)s::uuid[] IS NULL OR d.id = ANY(%(ids)s))
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.doc_id IN (d.id, d.parent_id) AND j.kind IN ('ingest', 'corpus')
                  AND (j.state IN ('queued', 'running')
                       OR j.state IN ('failed', 'cancelled')
                       AND coalesce((j.payload ->> 'request')::bigint, 0) >= d.floor_request))
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.kind = 'import' AND j.state IN ('queued', 'running')
                  AND j.payload ->> 'target' = d.container_id)
LIMIT %(limit)s
"""

WRONG_COUNTS: Final = """
SELECT d.id, d.uri, d.live_chunks, count(c.chunk_no) AS found
FROM documents d
LEFT JOIN chunks c ON c.doc_id = d.id AND c.generation = d.live_generation
WHERE d.container_id = %(id)s AND d.deleted_at IS NULL AND d.live_generation IS NOT NULL
GROUP BY d.id
HAVING d.live_chunks <> count(c.chunk_no)
LIMIT %(limit)s
"""

DEAD_ROWS: Final = """
WITH found AS (
    SELECT c.doc_id, c.generation, 'chunks' AS kind FROM chunks c JOIN documents d ON d.id = c.doc_id
    WHERE c.container_id = %(id)s AND d.container_id = %(id)s
      AND (d.live_generation IS DISTINCT FROM c.generation OR d.deleted_at IS NOT NULL)
    UNION ALL
    SELECT p.doc_id, p.generation, 'pages' FROM pages p JOIN documents d ON d.id = p.doc_id
    WHERE d.container_id = %(id)s AND (d.live_generation IS DISTINCT FROM p.generation OR d.deleted_at IS NOT NULL)
    UNION ALL
    SELECT r.doc_id, r.generation, 'refs' FROM blob_refs r JOIN documents d ON d.id = r.doc_id
    WHERE d.container_id = %(id)s AND (d.live_generation IS DISTINCT FROM r.generation OR d.deleted_at IS NOT NULL)
)
SELECT doc_id, generation, count(*) FILTER (WHERE kind = 'chunks') AS chunks,
       count(*) FILTER (WHERE kind = 'pages') AS pages, count(*) FILTER (WHERE kind = 'refs') AS refs
FROM found
GROUP BY doc_id, generation
LIMIT %(limit)s
"""

LIVE_REFS: Final = """
SELECT r.doc_id, r.generation, r.role, r.part, r.bucket, r.sha256, b.state, b.bytes
FROM blob_refs r
JOIN documents d ON d.id = r.doc_id AND d.live_generation = r.generation
JOIN blobs b ON b.bucket = r.bucket AND b.sha256 = r.sha256
WHERE d.container_id = %(id)s AND d.deleted_at IS NULL AND (r.doc_id, r.role, r.part) > (%(doc)s, %(role)s, %(part)s)
ORDER BY r.doc_id, r.role, r.part
LIMIT %(limit)s
"""

# Only the archive knows which documents an import will write.
OPEN_WORK: Final = """
SELECT doc.id
FROM unnest(%(ids)s::uuid[]) AS doc (id)
WHERE EXISTS (
    SELECT 1 FROM jobs j
    WHERE j.kind = 'import' AND j.state IN ('queued', 'running') AND j.payload ->> 'target' = %(container_id)s
) OR EXISTS (
    SELECT 1 FROM jobs j
    WHERE j.container_id = %(container_id)s AND j.state IN ('queued', 'running')
      AND (
          (j.kind IN ('ingest', 'corpus')
           AND (j.doc_id = doc.id OR j.doc_id = (SELECT parent_id FROM documents WHERE id = doc.id)))
          OR (j.kind IN ('summarise', 'extract', 'caption', 'embed_generated', 'purge') AND j.doc_id = doc.id)
          OR (j.kind = 'purge'
              AND (j.payload -> 'below' @> jsonb_build_array(jsonb_build_array(doc.id::text))
                   OR j.payload -> 'only' @> jsonb_build_array(jsonb_build_array(doc.id::text))))
          OR j.kind = 'delete_container'
      )
)
"""

AWAITED: Final = """
SELECT 1 FROM jobs j
WHERE j.state IN ('queued', 'running')
  AND (j.kind IN ('ingest', 'corpus')
       AND j.doc_id IN (%(doc)s, (SELECT parent_id FROM documents WHERE id = %(doc)s))
       OR j.kind = 'import' AND j.payload ->> 'target' = %(container_id)s)
LIMIT 1
"""

BLOB_GARBAGE: Final = """
SELECT b.bucket, b.sha256, b.state FROM blobs b
WHERE b.touched_at < now() - make_interval(secs => %(older)s)
  AND NOT EXISTS (SELECT 1 FROM blob_refs r WHERE r.bucket = b.bucket AND r.sha256 = b.sha256)
  AND NOT EXISTS (SELECT 1 FROM uploads u WHERE u.bucket = b.bucket AND u.sha256 = b.sha256)
  AND NOT EXISTS (SELECT 1 FROM upload_parts p WHERE p.bucket = b.bucket AND p.sha256 = b.sha256)
  AND NOT EXISTS (SELECT 1 FROM archives a WHERE a.bucket = b.bucket AND a.sha256 = b.sha256)
  AND NOT EXISTS (SELECT 1 FROM documents d JOIN containers c ON c.id = d.container_id
                  WHERE d.accepted_sha256 = b.sha256 AND c.bucket = b.bucket
                    AND (d.deleted_at IS NULL OR d.restorable_until > now()))
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.state IN ('queued', 'running', 'failed', 'cancelled')
                  AND j.kind IN ('ingest', 'corpus') AND j.payload ->> 'sha256' = b.sha256)
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.state = 'running' AND j.kind IN ('import', 'ingest')
                  AND j.started_at <= b.touched_at)
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.kind = 'garbage'
                  AND (j.state = 'running'
                       OR j.state = 'queued' AND j.run_at < now() + make_interval(secs => %(older)s)))
ORDER BY b.bucket, b.sha256
LIMIT %(limit)s
"""

REFERS: Final = """
SELECT 1 FROM blob_refs r JOIN documents d ON d.id = r.doc_id AND d.live_generation = r.generation
WHERE r.doc_id = %(doc)s AND r.generation = %(generation)s AND r.role = %(role)s AND r.part = %(part)s
  AND d.deleted_at IS NULL
"""

DEAD_LETTERS: Final = """
SELECT id, kind, doc_id, cause ->> 'message' AS cause FROM jobs
WHERE container_id = %(id)s AND state = 'failed'
ORDER BY id DESC
LIMIT %(limit)s
"""

# An archive that does not tell leaves NULL.
OUTDATED: Final = """
SELECT count(*) AS documents FROM documents
WHERE container_id = %(id)s AND live_generation IS NOT NULL AND deleted_at IS NULL
  AND NOT starts_with(recipe, CASE source_type WHEN 'code' THEN %(code)s ELSE %(other)s END)
"""

SPACE_DRIFT: Final = """
SELECT s.state FROM containers c JOIN spaces s ON s.id = c.live_space
WHERE c.id = %(id)s AND c.deleted_at IS NULL AND s.state <> 'live'
"""

# Those of a container, or (NULL) the backups whose container is gone.
ARCHIVES: Final = """
SELECT a.id, a.kind, a.container_id, a.bucket, a.sha256, a.bytes, b.state
FROM archives a JOIN blobs b ON b.bucket = a.bucket AND b.sha256 = a.sha256
WHERE a.id > %(after)s
  AND (a.container_id = %(id)s OR %(id)s::text IS NULL AND NOT EXISTS (
           SELECT 1 FROM containers c WHERE c.id = a.container_id AND c.deleted_at IS NULL))
ORDER BY a.id
LIMIT %(limit)s
"""

# A session lock on a separate connection: it ends with the connection, however the run ends.
TRY_LOCK: Final = "SELECT pg_try_advisory_lock(7806) AS mine"
UNLOCK: Final = "SELECT pg_advisory_unlock(7806)"

KNOWN_BLOBS: Final = (
    "SELECT sha256 FROM blobs WHERE bucket = %(bucket)s AND sha256 = ANY(%(hashes)s)"
)


@dataclass(frozen=True, slots=True)
class PendingRow:
    id: UUID
    uri: str
    has_original: bool


@dataclass(frozen=True, slots=True)
class WrongCountRow:
    id: UUID
    uri: str
    live_chunks: int
    found: int


@dataclass(frozen=True, slots=True)
class DeadGenerationRow:
    """Numbers of rows of a generation that is not live."""

    doc_id: UUID
    generation: int
    chunks: int
    pages: int
    refs: int


@dataclass(frozen=True, slots=True)
class LiveRefRow:
    doc_id: UUID
    generation: int
    role: str
    part: int
    bucket: str
    sha256: str
    state: str
    bytes: int


@dataclass(frozen=True, slots=True)
class GarbageRow:
    bucket: str
    sha256: str
    state: str


@dataclass(frozen=True, slots=True)
class ArchiveRow:
    id: int
    kind: str
    container_id: str
    bucket: str
    sha256: str
    bytes: int
    state: str


@dataclass(frozen=True, slots=True)
class DeadLetterRow:
    id: int
    kind: str
    doc_id: UUID | None
    cause: str | None


@dataclass(frozen=True, slots=True)
class DanglingTokenRow:
    id: int
    principal: str
    name: str
    gone: list[str]


@asynccontextmanager
async def alone(db: Database) -> AsyncIterator[None]:
    """Allow only one comparison of the stores while the block runs: each reads everything and may repair.

    Raises ``Conflict`` while another gateway or request compares them.
    """
    async with db.dedicated(name="doctor") as conn:
        row = await (await conn.execute(TRY_LOCK)).fetchone()
        if row is None or not row["mine"]:
            raise Conflict("another doctor run compares the stores now: retry when it has ended")
        try:
            yield
        finally:
            await release(conn, UNLOCK)


async def counts(conn: Connection, container_id: str, collection_id: int) -> dict[str, int]:
    """Counts by the rows: documents, chunks and so on, and the points in the collection ``collection_id``."""
    values = {"id": container_id, "collection_id": collection_id}
    row = await (await conn.execute(COUNTS, values)).fetchone()
    return {name: int(value) for name, value in (row or {}).items()}


async def pending_without_job(
    conn: Connection, container_id: str, limit: int, *, among: Sequence[UUID] | None = None
) -> list[PendingRow]:
    """Accepted documents without an open or failed job: they would stay pending for ever.

    ``among`` limits the result: check again with the rows locked before a document is taken back.
    """
    values = {
        "id": container_id,
        "limit": limit,
        "ids": list(among) if among is not None else None,
    }
    return await _rows(conn, PendingRow, PENDING_WITHOUT_JOB, values)


async def wrong_counts(conn: Connection, container_id: str, limit: int) -> list[WrongCountRow]:
    """Documents whose number of chunks differs from their row."""
    return await _rows(conn, WrongCountRow, WRONG_COUNTS, {"id": container_id, "limit": limit})


async def dead_rows(conn: Connection, container_id: str, limit: int) -> list[DeadGenerationRow]:
    """Generations that are not live and still have chunks, pages or references to blobs."""
    return await _rows(conn, DeadGenerationRow, DEAD_ROWS, {"id": container_id, "limit": limit})


async def live_refs(
    conn: Connection, container_id: str, after: tuple[UUID, str, int], limit: int
) -> list[LiveRefRow]:
    """References of live documents to blobs, in key order after ``after``."""
    doc, role, part = after
    return await _rows(
        conn,
        LiveRefRow,
        LIVE_REFS,
        {"id": container_id, "doc": doc, "role": role, "part": part, "limit": limit},
    )


async def with_open_work(conn: Connection, container_id: str, doc_ids: Sequence[UUID]) -> set[UUID]:
    """Those documents with a queued or running ingest, import or purge: their contents may change."""
    if not doc_ids:
        return set()
    cursor = await conn.execute(OPEN_WORK, {"ids": list(doc_ids), "container_id": container_id})
    return {r["id"] for r in await cursor.fetchall()}


async def awaited(conn: Connection, container_id: str, doc_id: UUID) -> bool:
    """Whether a queued or running ingest or import may publish a newer generation. Lock the document first."""
    values = {"doc": doc_id, "container_id": container_id}
    return await (await conn.execute(AWAITED, values)).fetchone() is not None


async def blob_garbage(conn: Connection, older_than_seconds: float, limit: int) -> list[GarbageRow]:
    """Blobs without a reference, not touched for this time and not about to be collected."""
    return await _rows(
        conn, GarbageRow, BLOB_GARBAGE, {"older": older_than_seconds, "limit": limit}
    )


async def archives(
    conn: Connection, container_id: str | None, after: int, limit: int
) -> list[ArchiveRow]:
    """Exports, backups and import files of a container; with None those whose container does not exist."""
    values = {"id": container_id, "after": after, "limit": limit}
    return await _rows(conn, ArchiveRow, ARCHIVES, values)


async def known_blobs(conn: Connection, bucket: str, hashes: Sequence[str]) -> set[str]:
    """Those hashes that have a row in this bucket."""
    cursor = await conn.execute(KNOWN_BLOBS, {"bucket": bucket, "hashes": list(hashes)})
    return {r["sha256"] for r in await cursor.fetchall()}


async def refers(conn: Connection, doc_id: UUID, generation: int, role: str, part: int) -> bool:
    """Whether a live document still has this reference."""
    values = {"doc": doc_id, "generation": generation, "role": role, "part": part}
    return await (await conn.execute(REFERS, values)).fetchone() is not None


async def dead_letters(conn: Connection, container_id: str, limit: int) -> list[DeadLetterRow]:
    """Dead letters, newest first."""
    return await _rows(conn, DeadLetterRow, DEAD_LETTERS, {"id": container_id, "limit": limit})


async def outdated(conn: Connection, container_id: str, *, code: str, other: str) -> int:
    """Live documents that were made by another recipe: ``code`` for source code, ``other`` for all else."""
    parameters = {"id": container_id, "code": code, "other": other}
    row = await (await conn.execute(OUTDATED, parameters)).fetchone()
    return int(row["documents"]) if row else 0


async def space_drift(conn: Connection, container_id: str) -> str | None:
    """The state of the searched space if it is not ``live``."""
    row = await (await conn.execute(SPACE_DRIFT, {"id": container_id})).fetchone()
    return str(row["state"]) if row else None


MANIFEST: Final = "SELECT manifest, etag FROM containers WHERE id = %(id)s AND deleted_at IS NULL"

LOST_LANGUAGES: Final = """
SELECT DISTINCT d.language FROM documents d
WHERE d.container_id = %(id)s AND d.deleted_at IS NULL AND d.live_generation IS NOT NULL AND d.live_chunks > 0
  AND d.language IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM container_languages l WHERE l.container_id = d.container_id AND l.language = d.language)
ORDER BY d.language
"""

SET_DIMS: Final = """
UPDATE spaces SET dims = %(dims)s
WHERE container_id = %(id)s AND coalesce(collection_id, id) = %(collection_id)s AND dims <> %(dims)s
"""

SET_ETAG: Final = "UPDATE containers SET etag = %(etag)s WHERE id = %(id)s AND etag = %(before)s"

# Missing containers, in tokens that are still live.
DANGLING: Final = """
SELECT t.id, t.principal, t.name, array_agg(named.id ORDER BY named.id) AS gone
FROM tokens t CROSS JOIN LATERAL unnest(t.containers) AS named (id)
WHERE t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())
  AND NOT EXISTS (SELECT 1 FROM containers c WHERE c.id = named.id AND c.deleted_at IS NULL)
GROUP BY t.id
ORDER BY t.id
LIMIT %(limit)s
"""


async def manifest(conn: Connection, container_id: str) -> dict[str, Any] | None:
    """As it is stored, with its etag."""
    return await (await conn.execute(MANIFEST, {"id": container_id})).fetchone()


async def lost_languages(conn: Connection, container_id: str) -> list[str]:
    """Languages of live documents that are missing in the container's list."""
    rows = await (await conn.execute(LOST_LANGUAGES, {"id": container_id})).fetchall()
    return [row["language"] for row in rows]


async def set_dims(conn: Connection, container_id: str, collection_id: int, dims: int) -> None:
    """Of all spaces that read one collection."""
    await conn.execute(SET_DIMS, {"id": container_id, "collection_id": collection_id, "dims": dims})


async def set_etag(conn: Connection, container_id: str, before: str, etag: str) -> None:
    """Not when the manifest was changed in between."""
    await conn.execute(SET_ETAG, {"id": container_id, "before": before, "etag": etag})


async def dangling_tokens(conn: Connection, limit: int) -> list[DanglingTokenRow]:
    """Live tokens that name missing containers."""
    return await _rows(conn, DanglingTokenRow, DANGLING, {"limit": limit})


async def _rows(
    conn: Connection, row: type[Row], statement: LiteralString, values: Mapping[str, Any]
) -> list[Row]:
    async with conn.cursor(row_factory=class_row(row)) as cursor:
        await cursor.execute(statement, values)
        return await cursor.fetchall()
