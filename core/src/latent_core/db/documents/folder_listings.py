"""Stored documents for change detection: those that a folder's listing names, and those missing in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from latent_core.db.connection import Connection


@dataclass(frozen=True, slots=True)
class LastJob:
    """The last request for a document and its result."""

    job_id: int
    open: bool
    """Queued or running."""
    refused: str | None
    """Why it failed, if a retry would not help."""
    sha256: str | None
    mtime_ns: int | None
    recipe: str | None
    given_meta: str | None


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A stored document that a listing names."""

    doc_id: UUID
    live: bool
    sha256: str | None
    bytes: int | None
    mtime_ns: int | None
    source_type: str | None
    recipe: str | None
    given_meta: str | None
    has_original: bool
    """Whether its original is stored, as far as known."""
    job: LastJob | None


@dataclass(frozen=True, slots=True)
class UriSpan:
    """Uris below a folder's root in byte order: all with ``prefix``, after ``after``, up to ``through``."""

    prefix: str
    after: str | None = None
    through: str | None = None

    def holds(self, uri: str) -> bool:
        """Code points order as UTF-8 bytes do."""
        return (
            uri.startswith(self.prefix)
            and (self.after is None or uri > self.after)
            and (self.through is None or uri <= self.through)
        )


KNOWN: Final = """
SELECT d.id, d.live_generation IS NOT NULL AS live, d.sha256, d.bytes, d.source_mtime_ns, d.source_type, d.recipe, d.given_meta,
       j.id AS job_id, j.state IN ('queued', 'running') AS open,
       CASE WHEN j.state = 'failed' AND j.cause ->> 'code' = 'INGEST_FAIL' THEN j.cause ->> 'message' END AS refused,
       coalesce(j.payload ->> 'source_sha256', j.payload ->> 'sha256') AS job_sha256, (j.payload ->> 'mtime_ns')::bigint AS job_mtime_ns,
       j.payload ->> 'recipe' AS job_recipe, j.payload ->> 'given_meta' AS job_given_meta,
       EXISTS (SELECT 1 FROM blob_refs r JOIN blobs b ON b.bucket = r.bucket AND b.sha256 = r.sha256
               WHERE r.doc_id = d.id AND r.generation = d.live_generation AND r.role = 'original'
                 AND b.state = 'present') AS has_original
FROM documents d LEFT JOIN LATERAL (
    SELECT id, state, cause, payload FROM jobs
    WHERE doc_id = d.id AND kind IN ('ingest', 'corpus')
    ORDER BY id DESC LIMIT 1
) j ON true
WHERE d.id = ANY(%(ids)s) AND d.deleted_at IS NULL AND d.parent_id IS NULL
"""

# Operators of text_pattern_ops: the index on uris compares bytes, independent of the database's collation.
# In the order of ids, as all code locks documents; only where the bytes are still the same.
TOUCH: Final = """
UPDATE documents d SET source_mtime_ns = t.mtime_ns
FROM (SELECT id FROM documents WHERE id = ANY(%(ids)s::uuid[]) ORDER BY id FOR NO KEY UPDATE) AS held
JOIN unnest(%(ids)s::uuid[], %(times)s::bigint[], %(hashes)s::text[]) AS t(id, mtime_ns, sha256) ON t.id = held.id
WHERE d.id = held.id AND d.sha256 = t.sha256
"""

VANISHED: Final = """
SELECT d.id, d.uri FROM documents d
WHERE d.container_id = %(container_id)s AND d.deleted_at IS NULL AND d.parent_id IS NULL
  AND d.uri ^@ %(prefix)s
  AND (%(after)s::text IS NULL OR d.uri ~>~ %(after)s) AND (%(through)s::text IS NULL OR d.uri ~<=~ %(through)s)
  AND NOT EXISTS (SELECT 1 FROM unnest(%(ids)s::uuid[]) AS k (id) WHERE k.id = d.id)
ORDER BY d.uri USING ~<~
LIMIT %(limit)s
"""

VANISHED_COUNT: Final = """
SELECT count(*) AS number FROM documents d
WHERE d.container_id = %(container_id)s AND d.deleted_at IS NULL AND d.parent_id IS NULL
  AND d.uri ^@ %(prefix)s
  AND (%(after)s::text IS NULL OR d.uri ~>~ %(after)s) AND (%(through)s::text IS NULL OR d.uri ~<=~ %(through)s)
  AND NOT EXISTS (SELECT 1 FROM unnest(%(ids)s::uuid[]) AS k (id) WHERE k.id = d.id)
"""

DOCUMENTS: Final = """
SELECT count(*) AS number FROM documents d
WHERE d.container_id = %(container_id)s AND d.deleted_at IS NULL AND d.parent_id IS NULL AND d.uri ^@ %(prefix)s
"""


async def known(conn: Connection, doc_ids: Sequence[UUID]) -> dict[UUID, StoredFile]:
    """Those that are stored; records of a corpus are not listed."""
    cursor = await conn.execute(KNOWN, {"ids": list(doc_ids)})
    return {r["id"]: _listed(r) for r in await cursor.fetchall()}


async def touch(
    conn: Connection, times: Mapping[UUID, int], hashes: Mapping[UUID, str | None]
) -> None:
    """Record new times of files whose bytes equal the live document."""
    ids = list(times)
    await conn.execute(
        TOUCH, {"ids": ids, "times": [times[i] for i in ids], "hashes": [hashes[i] for i in ids]}
    )


async def vanished(
    conn: Connection, container_id: str, span: UriSpan, doc_ids: Sequence[UUID], limit: int
) -> list[tuple[UUID, str]]:
    """Id and uri of documents in ``span`` that are not in ``doc_ids``, at most ``limit``, by uri."""
    values = _within(container_id, span, doc_ids) | {"limit": limit}
    cursor = await conn.execute(VANISHED, values)
    return [(r["id"], r["uri"]) for r in await cursor.fetchall()]


async def count_vanished(
    conn: Connection, container_id: str, span: UriSpan, doc_ids: Sequence[UUID]
) -> int:
    """How many documents ``vanished`` has without a limit."""
    cursor = await conn.execute(VANISHED_COUNT, _within(container_id, span, doc_ids))
    return int((await cursor.fetchall())[0]["number"])


async def count_documents(conn: Connection, container_id: str, prefix: str) -> int:
    """Documents below a root."""
    cursor = await conn.execute(DOCUMENTS, {"container_id": container_id, "prefix": prefix})
    return int((await cursor.fetchall())[0]["number"])


def _within(container_id: str, span: UriSpan, doc_ids: Sequence[UUID]) -> dict[str, Any]:
    return {
        "container_id": container_id,
        "prefix": span.prefix,
        "after": span.after,
        "through": span.through,
        "ids": list(doc_ids),
    }


def _listed(row: dict[str, Any]) -> StoredFile:
    return StoredFile(
        doc_id=row["id"],
        live=row["live"],
        sha256=row["sha256"],
        bytes=row["bytes"],
        mtime_ns=row["source_mtime_ns"],
        source_type=row["source_type"],
        recipe=row["recipe"],
        given_meta=row["given_meta"],
        has_original=row["has_original"],
        job=None if row["job_id"] is None else _job(row),
    )


def _job(row: dict[str, Any]) -> LastJob:
    return LastJob(
        job_id=row["job_id"],
        open=row["open"],
        refused=row["refused"],
        sha256=row["job_sha256"],
        mtime_ns=row["job_mtime_ns"],
        recipe=row["job_recipe"],
        given_meta=row["job_given_meta"],
    )
