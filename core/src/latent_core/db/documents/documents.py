"""Rows of documents: their identity, their generations and their visibility."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import orjson

from latent_core.db.connection import Connection, only_row
from latent_core.domain.document import Author, DocumentView, NewestJob, failure_of
from latent_core.domain.generated import FIRST_POSITION
from latent_core.domain.ids import document_id


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """The data of a document when it is added."""

    container_id: str
    uri: str
    mime: str
    external_id: str | None = None
    parent_id: UUID | None = None
    author: Author | None = None
    """Of a new document; that of an existing one changes when its new content is published."""
    expires_at: datetime | None = None

    @property
    def doc_id(self) -> UUID:
        return document_id(self.container_id, self.uri)


@dataclass(frozen=True, slots=True)
class LiveGeneration:
    """The fields of the document's row that a publication writes."""

    title: str
    source_type: str
    sha256: str
    bytes: int
    language: str
    fingerprint: str
    chunks: int
    mime: str
    meta: dict[str, Any]
    validators: dict[str, Any] | None = None
    """Of a fetched page: the server's response headers for these bytes."""
    recipe: str | None = None
    """Digest of the code and settings that made it (``latent_core.domain.versions``)."""
    given_meta: str | None = None
    """``doc_meta.given_digest`` of the meta its sender gave."""
    written: Authorship | None = None
    """None: the same author as before."""


@dataclass(frozen=True, slots=True)
class Authorship:
    """Who added this content, when, and until when it is kept."""

    author: Author
    at: datetime
    expires_at: datetime | None


ACCEPT: Final = """
INSERT INTO documents (id, container_id, uri, mime, external_id, parent_id, request, origin, written_by, token_name,
                       session, expires_at)
VALUES (%(id)s, %(container_id)s, %(uri)s, %(mime)s, %(external_id)s, %(parent_id)s, 1,
        coalesce(%(origin)s, CASE WHEN %(uri)s ~ '^https?://' THEN 'web' ELSE 'file' END), %(written_by)s,
        %(token_name)s, %(session)s, %(expires_at)s)
ON CONFLICT (id) DO UPDATE SET deleted_at = NULL, restorable_until = NULL, updated_at = now(),
    request = documents.request + 1
RETURNING request
"""

STILL_CURRENT: Final = """
SELECT 1 FROM documents
WHERE id = %(id)s AND deleted_at IS NULL AND floor_request <= %(request)s FOR SHARE
"""

SELECT: Final = """
SELECT id, container_id, uri, mime, source_type, title, sha256, bytes, meta, external_id, parent_id,
       live_generation, next_generation, floor_generation, request, floor_request, live_chunks, fingerprint, language,
       source_modified_at, source_mtime_ns, first_fetched_at, fetched_at, created_at, updated_at, deleted_at
FROM documents WHERE id = %(id)s
"""

TAKE_GENERATIONS: Final = """
WITH held AS MATERIALIZED (
    SELECT id FROM documents WHERE id = ANY(%(ids)s) ORDER BY id FOR UPDATE
)
UPDATE documents SET next_generation = next_generation + 1
WHERE id = ANY (ARRAY(SELECT id FROM held)) AND deleted_at IS NULL AND floor_request <= %(request)s
RETURNING id, next_generation - 1 AS generation, fingerprint, live_generation,
    greatest(coalesce(live_generation, 0) + 1, floor_generation) AS first
"""

LOCK: Final = """
SELECT id, live_generation FROM documents WHERE id = ANY(%(ids)s) ORDER BY id FOR UPDATE
"""

PUBLISH: Final = """
UPDATE documents
SET live_generation = %(generation)s, title = %(title)s, source_type = %(source_type)s, sha256 = %(sha256)s,
    bytes = %(bytes)s, language = %(language)s, fingerprint = %(fingerprint)s, live_chunks = %(chunks)s,
    mime = %(mime)s, meta = %(meta)s::jsonb, validators = %(validators)s::jsonb, source_modified_at = %(modified_at)s, source_mtime_ns = %(mtime_ns)s,
    fetched_at = %(fetched_at)s, first_fetched_at = coalesce(first_fetched_at, %(fetched_at)s), updated_at = now(),
    floor_request = %(request)s, recipe = %(recipe)s, given_meta = %(given_meta)s,
    origin = coalesce(%(origin)s, origin), written_by = coalesce(%(written_by)s, written_by),
    token_name = CASE WHEN %(written)s THEN %(token_name)s ELSE token_name END,
    session = CASE WHEN %(written)s THEN %(session)s ELSE session END,
    written_at = coalesce(%(written_at)s, written_at),
    expires_at = CASE WHEN %(written)s THEN %(expires_at)s ELSE expires_at END,
    superseded_by = CASE WHEN sha256 <> %(sha256)s AND superseded_at IS NOT NULL THEN NULL ELSE superseded_by END,
    superseded_at = CASE WHEN sha256 <> %(sha256)s THEN NULL ELSE superseded_at END
WHERE id = %(id)s AND deleted_at IS NULL AND floor_generation <= %(generation)s AND floor_request <= %(request)s
  AND (live_generation IS NULL OR live_generation < %(generation)s)
RETURNING id
"""

SEEN_UNCHANGED: Final = """
UPDATE documents
SET fetched_at = greatest(fetched_at, %(fetched_at)s), source_mtime_ns = coalesce(%(mtime_ns)s, source_mtime_ns),
    source_modified_at = coalesce(%(modified_at)s, source_modified_at), updated_at = now(),
    validators = coalesce(%(validators)s::jsonb, validators), floor_request = greatest(floor_request, %(request)s),
    given_meta = %(given_meta)s
WHERE id = %(id)s AND deleted_at IS NULL AND fingerprint = %(fingerprint)s AND live_generation IS NOT NULL
RETURNING id
"""

AGES: Final = (
    "SELECT id, source_modified_at, first_fetched_at FROM documents WHERE id = ANY(%(ids)s)"
)

META: Final = "SELECT meta FROM documents WHERE id = %(id)s"

LIVE_SOURCE: Final = """
SELECT sha256, fingerprint, validators FROM documents
WHERE id = %(id)s AND deleted_at IS NULL AND live_generation IS NOT NULL
  AND sha256 IS NOT NULL AND fingerprint IS NOT NULL AND validators IS NOT NULL
"""

# A deletion also overtakes a record for every request of its corpus so far, processed or not.
TOMBSTONE: Final = """
UPDATE documents
SET deleted_at = now(), updated_at = now(), live_generation = NULL, fingerprint = NULL, live_chunks = 0,
    sha256 = NULL, bytes = NULL, source_mtime_ns = NULL, first_fetched_at = NULL, validators = NULL,
    superseded_by = NULL, superseded_at = NULL, expires_at = NULL,
    restorable_until = overtaking.restorable_until,
    accepted_sha256 = CASE WHEN overtaking.restorable_until IS NOT NULL
                           THEN coalesce(documents.accepted_sha256, documents.sha256) END,
    floor_generation = next_generation, request = overtaking.request, floor_request = overtaking.request
FROM (
    SELECT d.id, greatest(d.request, d.floor_request, p.request) + 1 AS request,
           CASE WHEN d.parent_id IS NULL AND coalesce(d.accepted_sha256, d.sha256) IS NOT NULL
                     AND NOT EXISTS (SELECT 1 FROM documents r WHERE r.parent_id = d.id AND r.deleted_at IS NULL)
                THEN %(restorable_until)s::timestamptz END AS restorable_until
    FROM documents d LEFT JOIN documents p ON p.id = d.parent_id
    WHERE d.id = ANY(%(ids)s)
) overtaking
WHERE documents.id = overtaking.id AND documents.deleted_at IS NULL
RETURNING documents.id, documents.floor_generation, documents.floor_request,
    documents.restorable_until IS NOT NULL AS restorable
"""

# A record becomes visible with a batch of its corpus, whose job is not its own.
STATE: Final = """
CASE WHEN d.live_generation IS NOT NULL THEN 'live'
     WHEN d.parent_id IS NOT NULL OR EXISTS (
         SELECT 1 FROM jobs j
         WHERE j.doc_id = d.id AND j.kind IN ('ingest', 'corpus') AND j.state IN ('queued', 'running')) THEN 'pending'
     ELSE 'failed' END
"""

# A failure from before the live generation is ignored: done jobs are deleted sooner than failed ones.
NEWEST_JOB: Final = """
(SELECT jsonb_build_object('id', j.id, 'state', j.state, 'cause', j.cause, 'finished_at', j.finished_at) FROM jobs j
 WHERE j.doc_id = d.id AND j.kind IN ('ingest', 'corpus') AND d.parent_id IS NULL
   AND (j.state <> 'failed' OR d.live_generation IS NULL OR (j.payload ->> 'request')::bigint >= d.floor_request)
 ORDER BY j.id DESC LIMIT 1)
"""

VIEW: Final = f"""
SELECT d.id AS doc_id, d.container_id, d.uri AS source_uri, d.external_id, d.parent_id, d.title, d.mime, d.source_type,
       {STATE} AS state, {NEWEST_JOB} AS newest_job, d.live_generation AS generation,
       d.live_chunks AS chunks, d.bytes, d.sha256, d.language, d.source_modified_at AS modified_at,
       d.first_fetched_at, d.fetched_at, d.updated_at, d.meta, d.origin, d.written_by, d.token_name, d.written_at,
       d.session, d.version, d.superseded_by, d.superseded_at, d.expires_at, d.restorable_until,
       (SELECT count(*) FROM pages p WHERE p.doc_id = d.id AND p.generation = d.live_generation) AS pages,
       (SELECT count(*) FROM chunks g WHERE g.doc_id = d.id AND g.generation = d.live_generation
        AND (g.position >= {FIRST_POSITION} OR d.source_type = 'audio') AND g.generated IS NOT NULL) AS generated_chunks
FROM documents d
"""

ONE: Final = f"{VIEW} WHERE d.id = %(id)s AND d.deleted_at IS NULL"

OF_CONTAINER: Final = """
SELECT id FROM documents
WHERE container_id = %(container_id)s AND id = ANY(%(ids)s) AND deleted_at IS NULL
"""

EXISTING: Final = (
    "SELECT id FROM documents WHERE id = ANY(%(ids)s) AND deleted_at IS NULL ORDER BY id"
)

LIVE_COUNT: Final = """
SELECT count(*) AS documents FROM (
    SELECT 1 FROM documents
    WHERE container_id = %(container_id)s AND live_generation IS NOT NULL AND deleted_at IS NULL AND live_chunks > 0
      AND (superseded_at IS NULL OR %(superseded)s)
    LIMIT %(limit)s
) found
"""

BATCH_OF_CONTAINER: Final = "DELETE FROM documents WHERE id IN (SELECT id FROM documents WHERE container_id = %(id)s LIMIT %(limit)s)"


async def accept(conn: Connection, source: SourceInfo) -> int:
    """Make sure the document's row exists and is not deleted; the live generation stays.

    Returns the number of this request: of two requests, the one with the higher number decides what is live.
    """
    author = source.author
    cursor = await conn.execute(
        ACCEPT,
        {
            "id": source.doc_id,
            "origin": author.origin.value if author is not None else None,
            "written_by": author.written_by if author is not None else None,
            "token_name": author.token_name if author is not None else None,
            "session": author.session if author is not None else None,
            "expires_at": source.expires_at,
            "container_id": source.container_id,
            "uri": source.uri,
            "mime": source.mime,
            "external_id": source.external_id,
            "parent_id": source.parent_id,
        },
    )
    row = await cursor.fetchone()
    if row is None:
        raise RuntimeError("INSERT … ON CONFLICT DO UPDATE returned no row")
    return int(row["request"])


async def still_current(conn: Connection, doc_id: UUID, request: int) -> bool:
    """Whether no deletion or newer request has overtaken ``request``; the answer holds until the transaction ends."""
    return (
        await (await conn.execute(STILL_CURRENT, {"id": doc_id, "request": request})).fetchone()
        is not None
    )


async def row(conn: Connection, doc_id: UUID) -> dict[str, Any] | None:
    """The whole row, also of a deleted document."""
    return await (await conn.execute(SELECT, {"id": doc_id})).fetchone()


@dataclass(frozen=True, slots=True)
class Attempt:
    """A new generation of a document, not visible yet."""

    doc_id: UUID
    generation: int
    fingerprint: str | None
    """Of the live generation."""
    live: int | None = None
    """The live generation."""
    first: int = 1
    """Generations from this one on and below ``generation`` belong to attempts that failed."""


async def take_generations(
    conn: Connection, doc_ids: Sequence[UUID], request: int
) -> dict[UUID, Attempt]:
    """A new generation for each document whose newest request is still ``request``.

    Two attempts never share a generation, so commit before the first write outside Postgres.
    """
    cursor = await conn.execute(TAKE_GENERATIONS, {"ids": sorted(doc_ids), "request": request})
    return {
        r["id"]: Attempt(
            r["id"],
            r["generation"],
            r["fingerprint"] if r["live_generation"] is not None else None,
            r["live_generation"],
            r["first"],
        )
        for r in await cursor.fetchall()
    }


async def lock(conn: Connection, doc_ids: Sequence[UUID]) -> dict[UUID, int | None]:
    """Lock rows in id order; returns each document's live generation."""
    cursor = await conn.execute(LOCK, {"ids": sorted(doc_ids)})
    return {r["id"]: r["live_generation"] for r in await cursor.fetchall()}


async def publish(
    conn: Connection,
    doc_id: UUID,
    generation: int,
    live: LiveGeneration,
    *,
    request: int,
    fetched_at: datetime,
    modified_at: datetime | None,
    mtime_ns: int | None,
) -> bool:
    """Make ``generation`` the visible one, if it and its request are newer than the live ones and any deletion."""
    cursor = await conn.execute(
        PUBLISH,
        {
            "id": doc_id,
            "generation": generation,
            "title": live.title,
            "source_type": live.source_type,
            "sha256": live.sha256,
            "bytes": live.bytes,
            "language": live.language,
            "fingerprint": live.fingerprint,
            "chunks": live.chunks,
            "mime": live.mime,
            "request": request,
            "meta": orjson.dumps(live.meta).decode(),
            "fetched_at": fetched_at,
            "modified_at": modified_at,
            "mtime_ns": mtime_ns,
            "validators": _json(live.validators),
            "recipe": live.recipe,
            "given_meta": live.given_meta,
            **_written(live.written),
        },
    )
    return await cursor.fetchone() is not None


def _written(written: Authorship | None) -> dict[str, Any]:
    author = written.author if written is not None else None
    return {
        "written": written is not None,
        "origin": author.origin.value if author is not None else None,
        "written_by": author.written_by if author is not None else None,
        "token_name": author.token_name if author is not None else None,
        "session": author.session if author is not None else None,
        "written_at": written.at if written is not None else None,
        "expires_at": written.expires_at if written is not None else None,
    }


async def seen_unchanged(
    conn: Connection,
    doc_id: UUID,
    fingerprint: str,
    *,
    request: int,
    fetched_at: datetime,
    modified_at: datetime | None,
    mtime_ns: int | None,
    validators: dict[str, Any] | None = None,
    given_meta: str | None = None,
) -> bool:
    """Note that the source was fetched again and equals the live generation; False when it does not."""
    cursor = await conn.execute(
        SEEN_UNCHANGED,
        {
            "id": doc_id,
            "fingerprint": fingerprint,
            "request": request,
            "fetched_at": fetched_at,
            "modified_at": modified_at,
            "mtime_ns": mtime_ns,
            "validators": _json(validators),
            "given_meta": given_meta,
        },
    )
    return await cursor.fetchone() is not None


def _json(value: dict[str, Any] | None) -> str | None:
    return None if value is None else orjson.dumps(value).decode()


@dataclass(frozen=True, slots=True)
class LiveSource:
    """The original of the live generation, and the server's response headers for it."""

    sha256: str
    fingerprint: str
    validators: dict[str, Any]


async def meta_of(conn: Connection, doc_id: UUID) -> dict[str, Any]:
    """The whole meta of a document; empty without the document."""
    row = await (await conn.execute(META, {"id": doc_id})).fetchone()
    return dict(row["meta"] or {}) if row else {}


async def live_source(conn: Connection, doc_id: UUID) -> LiveSource | None:
    """None when nothing is live, or the document does not come from the web."""
    row = await (await conn.execute(LIVE_SOURCE, {"id": doc_id})).fetchone()
    return LiveSource(row["sha256"], row["fingerprint"], row["validators"]) if row else None


@dataclass(frozen=True, slots=True)
class DeletionFloor:
    """The bounds of a deletion: generations and requests below them never become live."""

    generation: int
    request: int
    restorable: bool = False


async def tombstone(
    conn: Connection, doc_ids: Sequence[UUID], restorable_until: datetime | None = None
) -> dict[UUID, DeletionFloor]:
    """Make documents invisible and overtake all their requests so far. Lock them first. Until ``restorable_until``
    their newest bytes are kept."""
    values = {"ids": sorted(doc_ids), "restorable_until": restorable_until}
    cursor = await conn.execute(TOMBSTONE, values)
    return floors(await cursor.fetchall())


def floors(rows: list[dict[str, Any]]) -> dict[UUID, DeletionFloor]:
    return {
        r["id"]: DeletionFloor(
            r["floor_generation"], r["floor_request"], r.get("restorable", False)
        )
        for r in rows
    }


async def view(conn: Connection, doc_id: UUID) -> DocumentView | None:
    found = await (await conn.execute(ONE, {"id": doc_id})).fetchone()
    return as_view(found) if found else None


def as_view(row: dict[str, Any]) -> DocumentView:
    """The document of a row of ``VIEW``."""
    view = DocumentView.model_validate(row)
    job = None if row["newest_job"] is None else NewestJob.model_validate(row["newest_job"])
    return view.model_copy(update={"failure": failure_of(view.state, job)})


async def existing(conn: Connection, doc_ids: Sequence[UUID]) -> list[UUID]:
    """Those of the documents that are not deleted."""
    cursor = await conn.execute(EXISTING, {"ids": list(doc_ids)})
    return [row["id"] for row in await cursor.fetchall()]


async def of_container(conn: Connection, container_id: str, doc_ids: Sequence[UUID]) -> set[UUID]:
    """Those of the documents that belong to the container and are not deleted."""
    cursor = await conn.execute(OF_CONTAINER, {"container_id": container_id, "ids": list(doc_ids)})
    return {row["id"] for row in await cursor.fetchall()}


async def ages(
    conn: Connection, doc_ids: Sequence[UUID]
) -> dict[UUID, tuple[datetime | None, datetime | None]]:
    """When each source was modified (if known) and first fetched."""
    cursor = await conn.execute(AGES, {"ids": list(doc_ids)})
    return {
        row["id"]: (row["source_modified_at"], row["first_fetched_at"])
        for row in await cursor.fetchall()
    }


async def live_count(
    conn: Connection, container_id: str, limit: int, *, superseded: bool = False
) -> int:
    """Visible documents with chunks, counted up to ``limit``; with ``superseded``, those too."""
    values = {"container_id": container_id, "limit": limit, "superseded": superseded}
    return int((await only_row(await conn.execute(LIVE_COUNT, values)))["documents"])


async def remove_batch(conn: Connection, container_id: str, limit: int) -> int:
    """Drop rows of a deleted container, with their chunks, pages and blob references."""
    return (await conn.execute(BATCH_OF_CONTAINER, {"id": container_id, "limit": limit})).rowcount
