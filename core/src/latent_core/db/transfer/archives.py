"""Rows of archives: exports, backups and uploaded files to import."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import orjson

from latent_core.db.connection import Connection
from latent_core.domain.job import ArchiveKind
from latent_core.wire.transfers import ArchiveView

MAX_NAMED: Final = 100
"""Maximum number of archives in the proof of a deletion."""
LAST: Final = 2**63 - 1


INSERT: Final = """
INSERT INTO archives (kind, container_id, bucket, sha256, bytes, filename, vectors, blobs, totals, contents_key, job_id)
VALUES (%(kind)s, %(container_id)s, %(bucket)s, %(sha256)s, %(bytes)s, %(filename)s, %(vectors)s, %(blobs)s, %(totals)s::jsonb,
        %(contents_key)s, %(job_id)s)
RETURNING id
"""

COLUMNS_BY_ID: Final = """
SELECT id, kind, container_id, bucket, sha256, bytes, filename, vectors, blobs, totals, created_at, verified_at
FROM archives WHERE id = %(id)s AND kind = %(kind)s
"""

LISTED: Final = """
SELECT id, kind, container_id, bucket, sha256, bytes, filename, vectors, blobs, totals, created_at, verified_at
FROM archives WHERE kind = %(kind)s AND container_id = ANY(%(container_ids)s::text[]) AND id < %(before)s
ORDER BY id DESC LIMIT %(limit)s
"""

OWNERLESS: Final = """
SELECT DISTINCT a.container_id FROM archives a
WHERE a.kind = 'backup'
  AND NOT EXISTS (SELECT 1 FROM containers c WHERE c.id = a.container_id AND c.deleted_at IS NULL)
ORDER BY a.container_id
"""

ARCHIVES_WITH_DOCUMENTS: Final = """
SELECT id, kind FROM archives
WHERE container_id = %(container_id)s AND kind IN ('export', 'backup')
  AND (%(doc_ids)s::uuid[] IS NULL
       OR created_at >= (SELECT min(created_at) FROM documents WHERE id = ANY(%(doc_ids)s)))
ORDER BY id DESC LIMIT %(limit)s
"""

READY: Final = """
SELECT id, kind, container_id, bucket, sha256, bytes, filename, vectors, blobs, totals, created_at, verified_at
FROM archives
WHERE kind = 'export' AND container_id = %(container_id)s AND vectors = %(vectors)s AND blobs = %(blobs)s
  AND contents_key = %(contents_key)s
ORDER BY id DESC LIMIT 1
"""

# A fingerprint of an export's contents: if it changes, a new export is needed. Pages are drawn after publication.
CONTENTS: Final = """
SELECT md5(concat_ws('/', c.etag, c.live_space,
       (SELECT concat_ws('/', count(*), sum(d.live_generation), max(d.updated_at)) FROM documents d
        WHERE d.container_id = c.id AND d.deleted_at IS NULL AND d.live_generation IS NOT NULL),
       (SELECT count(*) FROM pages p JOIN documents d ON d.id = p.doc_id AND d.live_generation = p.generation
        WHERE d.container_id = c.id AND d.deleted_at IS NULL AND p.image_sha256 IS NOT NULL),
       (SELECT count(original) FROM duplicates l WHERE l.container_id = c.id),
       (SELECT nullif(concat_ws('/', count(*), max(g.chunk_no)), '0') FROM chunks g
        WHERE g.container_id = c.id AND g.generated IS NOT NULL),
       (SELECT nullif(concat_ws('/', count(*), max(s.created_at)), '0') FROM summaries s
        JOIN documents d ON d.id = s.doc_id AND d.live_generation = s.generation WHERE d.container_id = c.id),
       (SELECT nullif(concat_ws('/', count(*), max(e.created_at)), '0') FROM page_extractions e
        JOIN documents d ON d.id = e.doc_id AND d.live_generation = e.generation WHERE d.container_id = c.id),
       (SELECT concat_ws('/', 'golden', g.version, g.changed_at) FROM golden_sets g WHERE g.container_id = c.id),
       (SELECT string_agg(concat_ws('/', s.root, s.id), '/' ORDER BY s.root) FROM sources s
        WHERE s.container_id = c.id))) AS key
FROM containers c WHERE c.id = %(container_id)s
"""

SUPERSEDE: Final = """
DELETE FROM archives
WHERE kind = 'export' AND container_id = %(container_id)s AND vectors = %(vectors)s AND blobs = %(blobs)s
  AND id < %(id)s
"""

RETAIN: Final = """
DELETE FROM archives
WHERE kind = 'backup' AND container_id = %(container_id)s AND id NOT IN (
    SELECT id FROM archives WHERE kind = 'backup' AND container_id = %(container_id)s
    ORDER BY id DESC LIMIT %(keep)s)
"""

REMOVE: Final = "DELETE FROM archives WHERE id = %(id)s AND kind = %(kind)s"

# A failed import can be requeued for a day; an export is made again on request.
EXPIRE: Final = """
DELETE FROM archives a
WHERE a.kind IN ('export', 'import') AND a.created_at < now() - interval '1 day'
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = a.job_id AND j.state IN ('queued', 'running'))
"""

OF_JOB: Final = "DELETE FROM archives WHERE kind = 'import' AND job_id = %(job_id)s"

VERIFIED: Final = "UPDATE archives SET verified_at = now() WHERE id = %(id)s"


async def insert(
    conn: Connection,
    kind: ArchiveKind,
    container_id: str,
    *,
    sha256: str,
    size: int,
    filename: str,
    job_id: int,
    bucket: str = "",
    vectors: bool = True,
    blobs: bool = True,
    totals: dict[str, int] | None = None,
    contents_key: str | None = None,
) -> int:
    """Record an archive whose bytes are stored; they stay as long as the row."""
    cursor = await conn.execute(
        INSERT,
        {
            "kind": kind.value,
            "container_id": container_id,
            "bucket": bucket,
            "sha256": sha256,
            "bytes": size,
            "filename": filename,
            "vectors": vectors,
            "blobs": blobs,
            "totals": orjson.dumps(totals or {}).decode(),
            "contents_key": contents_key,
            "job_id": job_id,
        },
    )
    row = await cursor.fetchone()
    if row is None:
        raise RuntimeError("INSERT … RETURNING returned no row")
    return int(row["id"])


async def get(conn: Connection, archive_id: int, kind: ArchiveKind) -> ArchiveView | None:
    values = {"id": archive_id, "kind": kind.value}
    row = await (await conn.execute(COLUMNS_BY_ID, values)).fetchone()
    return _view(row) if row else None


async def listed(
    conn: Connection,
    kind: ArchiveKind,
    container_ids: Sequence[str],
    limit: int,
    *,
    before: int = LAST,
) -> list[ArchiveView]:
    """Archives made before the archive ``before``, newest first."""
    values = {
        "kind": kind.value,
        "container_ids": list(container_ids),
        "before": before,
        "limit": limit,
    }
    return [_view(row) for row in await (await conn.execute(LISTED, values)).fetchall()]


async def ownerless(conn: Connection) -> list[str]:
    """Deleted containers that still have backups."""
    return [r["container_id"] for r in await (await conn.execute(OWNERLESS)).fetchall()]


async def containing(
    conn: Connection, container_id: str, doc_ids: Sequence[UUID] | None = None
) -> list[str]:
    """Exports and backups of a container, newest first and at most ``MAX_NAMED``; for given documents, those made
    since the first of them was added."""
    values = {
        "container_id": container_id,
        "doc_ids": list(doc_ids) if doc_ids is not None else None,
        "limit": MAX_NAMED,
    }
    rows = await (await conn.execute(ARCHIVES_WITH_DOCUMENTS, values)).fetchall()
    return [f"{r['kind']} {r['id']}" for r in rows]


async def contents_key(conn: Connection, container_id: str) -> str:
    """A value that changes when the contents of an export change."""
    row = await (await conn.execute(CONTENTS, {"container_id": container_id})).fetchone()
    return str(row["key"]) if row else ""


async def ready(
    conn: Connection, container_id: str, *, vectors: bool, blobs: bool, key: str
) -> ArchiveView | None:
    """The export of the container's current contents, if there is one."""
    values = {
        "container_id": container_id,
        "vectors": vectors,
        "blobs": blobs,
        "contents_key": key,
    }
    row = await (await conn.execute(READY, values)).fetchone()
    return _view(row) if row else None


async def supersede(
    conn: Connection, container_id: str, archive_id: int, *, vectors: bool, blobs: bool
) -> int:
    """Delete the rows of exports before this one; returns their number."""
    values = {"container_id": container_id, "vectors": vectors, "blobs": blobs, "id": archive_id}
    return (await conn.execute(SUPERSEDE, values)).rowcount


async def remove(conn: Connection, archive_id: int, kind: ArchiveKind) -> bool:
    """Delete one row; False when it does not exist. The next garbage collection removes its bytes if nothing else needs them."""
    values = {"id": archive_id, "kind": kind.value}
    return (await conn.execute(REMOVE, values)).rowcount == 1


async def retain(conn: Connection, container_id: str, keep: int) -> int:
    """Delete all but the ``keep`` newest backups; returns the number deleted."""
    return (await conn.execute(RETAIN, {"container_id": container_id, "keep": keep})).rowcount


async def expire(conn: Connection) -> int:
    """Delete exports and imported files older than a day; returns their number."""
    return (await conn.execute(EXPIRE)).rowcount


async def forget_import(conn: Connection, job_id: int) -> None:
    """Delete the row of the file of a finished import."""
    await conn.execute(OF_JOB, {"job_id": job_id})


async def note_verified(conn: Connection, archive_id: int) -> None:
    await conn.execute(VERIFIED, {"id": archive_id})


def _view(row: dict[str, Any]) -> ArchiveView:
    return ArchiveView.model_validate(row)
