"""Rows that an import writes: many documents per statement, chunks by COPY, and the hidden container during its build."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final
from uuid import UUID

import orjson

from latent_core.db.connection import Connection
from latent_core.db.copying import BINARY_END, BINARY_HEAD, copy_bytes

FOUND: Final = "INSERT INTO foundings (container_id, job_id) VALUES (%(container_id)s, %(job_id)s)"

FOUNDED: Final = """
SELECT 1 FROM foundings WHERE container_id = %(container_id)s AND job_id = %(job_id)s
"""

# The import set the tombstone itself; no other code can have reached the container since.
LIFT: Final = """
WITH mine AS (
    DELETE FROM foundings WHERE container_id = %(container_id)s AND job_id = %(job_id)s RETURNING container_id
)
UPDATE containers c SET deleted_at = NULL, updated_at = now() FROM mine WHERE c.id = mine.container_id
"""

FOUNDER: Final = "SELECT job_id FROM foundings WHERE container_id = %(container_id)s"

DISOWN: Final = """
DELETE FROM foundings f
WHERE NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = f.job_id AND j.state IN ('queued', 'running'))
RETURNING container_id
"""

GIVE_UP: Final = """
DELETE FROM foundings WHERE container_id = %(container_id)s AND job_id = %(job_id)s RETURNING container_id
"""

# Not if another session analyses or vacuums it: then it has statistics soon.
UPDATE_STATISTICS: Final = "ANALYZE (SKIP_LOCKED) documents"

NUMBERED: Final = """
UPDATE chunk_no_counters SET next_chunk_no = greatest(next_chunk_no, %(next)s) WHERE container_id = %(container_id)s
"""

# Accepted documents count too: their job, or the job of their corpus, is open.
EXISTING: Final = """
SELECT d.id, d.source_modified_at, d.fetched_at, w.awaited
FROM documents d
CROSS JOIN LATERAL (
    SELECT EXISTS (SELECT 1 FROM jobs j WHERE j.doc_id IN (d.id, d.parent_id)
                   AND j.kind IN ('ingest', 'corpus') AND j.state IN ('queued', 'running')) AS awaited) w
WHERE d.id = ANY(%(ids)s) AND d.deleted_at IS NULL AND (d.live_generation IS NOT NULL OR w.awaited)
"""

ACCEPT: Final = """
INSERT INTO documents (id, container_id, uri, mime, external_id, parent_id, request, next_generation, created_at)
SELECT r.id, %(container_id)s, r.uri, r.mime, r.external_id, r.parent_id, 1, 2, r.created_at
FROM jsonb_to_recordset(%(documents)s::jsonb)
     AS r (id uuid, uri text, mime text, external_id text, parent_id uuid, created_at timestamptz)
ORDER BY r.id
ON CONFLICT (id) DO UPDATE
SET deleted_at = NULL, restorable_until = NULL, updated_at = now(), request = documents.request + 1,
    next_generation = documents.next_generation + %(more)s
RETURNING id, request, next_generation - 1 AS generation
"""

PUBLISH: Final = """
UPDATE documents d
SET live_generation = r.generation, title = r.title, source_type = r.source_type, sha256 = r.sha256, bytes = r.bytes,
    language = r.language, fingerprint = r.fingerprint, live_chunks = r.chunks, mime = r.mime, meta = r.meta,
    validators = r.validators, source_modified_at = r.source_modified_at, source_mtime_ns = r.source_mtime_ns,
    fetched_at = r.fetched_at, first_fetched_at = least(d.first_fetched_at, r.first_fetched_at), updated_at = now(),
    floor_request = r.request, recipe = r.recipe, given_meta = r.given_meta, origin = r.origin,
    written_by = r.written_by, token_name = r.token_name, written_at = coalesce(r.written_at, d.written_at),
    session = r.session, version = greatest(d.version, r.version), superseded_by = r.superseded_by, superseded_at = r.superseded_at,
    expires_at = r.expires_at, restorable_until = NULL,
    accepted_sha256 = r.accepted_sha256
FROM jsonb_to_recordset(%(documents)s::jsonb)
     AS r (id uuid, generation integer, request bigint, title text, source_type text, sha256 text, bytes bigint,
           language text, fingerprint text, chunks integer, mime text, meta jsonb, validators jsonb,
           source_modified_at timestamptz, source_mtime_ns bigint, fetched_at timestamptz,
           first_fetched_at timestamptz, recipe text, given_meta text, origin text, written_by text,
           token_name text, written_at timestamptz, session text, version integer, superseded_by uuid,
           superseded_at timestamptz, expires_at timestamptz, accepted_sha256 text)
WHERE d.id = r.id AND d.deleted_at IS NULL AND d.floor_generation <= r.generation AND d.floor_request <= r.request
  AND (d.live_generation IS NULL OR d.live_generation < r.generation)
RETURNING d.id
"""

COPY_CHUNKS: Final = """
COPY chunks (doc_id, generation, id, container_id, chunk_no, windows, position, modality, source_type, block_type, text,
             embed_text, embed_head, page, page_end, line_start, line_end, heading_path, key_path, parent_section, table_id,
             row_group, offset_start, offset_end, content_hash, token_count, length, provenance, meta, created_at, generated,
             tsv)
FROM STDIN (FORMAT BINARY)
"""

COPY_SIGNATURES: Final = "COPY signatures (container_id, chunk_no, bits) FROM STDIN (FORMAT BINARY)"

COPY_PAGES: Final = """
COPY pages (doc_id, generation, page, image_sha256, pdf_sha256, text, width, height, line_start, line_end, visual,
            words)
FROM STDIN
"""

COPY_REFS: Final = """
COPY blob_refs (doc_id, generation, role, part, bucket, sha256, mime, filename) FROM STDIN
"""

COPY_DUPLICATES: Final = "COPY duplicates (container_id, chunk_no, signature, original) FROM STDIN"

WRITE_SUMMARIES: Final = """
INSERT INTO summaries (doc_id, generation, state, front_matter, text, model, prompt_version, input_hash, raw, cause,
                       input_tokens, output_tokens, cost, created_at)
SELECT r.doc_id, r.generation, r.state, r.front_matter, r.text, r.model, r.prompt_version, r.input_hash, r.raw,
       nullif(r.cause, 'null'), r.input_tokens, r.output_tokens, r.cost, r.created_at
FROM jsonb_to_recordset(%(rows)s::jsonb)
     AS r (doc_id uuid, generation integer, state text, front_matter jsonb, text text, model text, prompt_version text,
           input_hash text, raw text, cause jsonb, input_tokens bigint, output_tokens bigint, cost double precision,
           created_at timestamptz)
ON CONFLICT (doc_id) DO UPDATE
SET generation = excluded.generation, state = excluded.state, front_matter = excluded.front_matter,
    text = excluded.text, model = excluded.model, prompt_version = excluded.prompt_version,
    input_hash = excluded.input_hash, raw = excluded.raw, cause = excluded.cause,
    input_tokens = excluded.input_tokens, output_tokens = excluded.output_tokens, cost = excluded.cost,
    created_at = excluded.created_at
"""

WRITE_EXTRACTIONS: Final = """
INSERT INTO page_extractions (doc_id, generation, page, state, extraction, visual_importance, raw, cause, model,
                              prompt_version, version, page_hash, next_page, pdf_sha256, page_pdf_sha256,
                              next_page_pdf_sha256, input_tokens, output_tokens, cost, created_at)
SELECT r.doc_id, r.generation, r.page, r.state, nullif(r.extraction, 'null'), r.visual_importance, r.raw,
       nullif(r.cause, 'null'), r.model, r.prompt_version, r.version, r.page_hash, r.next_page, r.pdf_sha256,
       r.page_pdf_sha256, r.next_page_pdf_sha256, r.input_tokens, r.output_tokens, r.cost, r.created_at
FROM jsonb_to_recordset(%(rows)s::jsonb)
     AS r (doc_id uuid, generation integer, page integer, state text, extraction jsonb, visual_importance smallint,
           raw text, cause jsonb, model text, prompt_version text, version text, page_hash text, next_page integer,
           pdf_sha256 text, page_pdf_sha256 text, next_page_pdf_sha256 text, input_tokens bigint, output_tokens bigint,
           cost double precision, created_at timestamptz)
"""

# They stay until the transaction ends: the removal of a blob locks its row first.
PRESENT: Final = """
SELECT sha256 FROM blobs
WHERE bucket = %(bucket)s AND sha256 = ANY(%(hashes)s) AND state = 'present'
ORDER BY sha256 FOR KEY SHARE
"""


async def found(conn: Connection, container_id: str, job_id: int) -> None:
    """Record that this job builds the container."""
    await conn.execute(FOUND, {"container_id": container_id, "job_id": job_id})


async def founded(conn: Connection, container_id: str, job_id: int) -> bool:
    values = {"container_id": container_id, "job_id": job_id}
    return await (await conn.execute(FOUNDED, values)).fetchone() is not None


async def founder(conn: Connection, container_id: str) -> int | None:
    """The job that builds a still hidden container."""
    row = await (await conn.execute(FOUNDER, {"container_id": container_id})).fetchone()
    return int(row["job_id"]) if row else None


async def lift(conn: Connection, container_id: str, job_id: int) -> bool:
    """Make a built container visible with all its contents."""
    values = {"container_id": container_id, "job_id": job_id}
    return (await conn.execute(LIFT, values)).rowcount == 1


async def update_statistics(conn: Connection) -> None:
    """Have the planner know how many documents there are. Until autovacuum came by, the join on what is visible read all
    of them, for it took them to be few."""
    await conn.execute(UPDATE_STATISTICS)


async def give_up(conn: Connection, container_id: str, job_id: int) -> bool:
    """Clear this job as the container's builder; returns whether it was."""
    values = {"container_id": container_id, "job_id": job_id}
    return await (await conn.execute(GIVE_UP, values)).fetchone() is not None


async def disown(conn: Connection) -> list[str]:
    """Containers whose builder has ended without lifting the tombstone."""
    return [r["container_id"] for r in await (await conn.execute(DISOWN)).fetchall()]


async def numbered(conn: Connection, container_id: str, next_chunk_no: int) -> None:
    """All chunk_nos below it are given out."""
    await conn.execute(NUMBERED, {"container_id": container_id, "next": next_chunk_no})


async def existing(conn: Connection, ids: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
    """Documents that are live or accepted, with their ages and whether a newer version is expected."""
    cursor = await conn.execute(EXISTING, {"ids": list(ids)})
    return {r["id"]: r for r in await cursor.fetchall()}


async def accept(
    conn: Connection, container_id: str, documents: Sequence[dict[str, Any]], *, fresh: bool
) -> dict[UUID, tuple[int, int]]:
    """Insert rows and a generation for each document; returns (request, generation) of each.

    With ``fresh`` the generation is new: commit before the first write outside Postgres, since a rollback would
    give it out again. Without ``fresh``, a retry gets the same generation as the attempt before.
    """
    values = {
        "container_id": container_id,
        "documents": orjson.dumps(documents).decode(),
        "more": int(fresh),
    }
    rows = await (await conn.execute(ACCEPT, values)).fetchall()
    return {r["id"]: (r["request"], r["generation"]) for r in rows}


async def publish(conn: Connection, documents: Sequence[dict[str, Any]]) -> set[UUID]:
    """Make generations visible that are newer than the live ones and any deletion; returns them. Lock the documents first."""
    cursor = await conn.execute(PUBLISH, {"documents": orjson.dumps(documents).decode()})
    return {r["id"] for r in await cursor.fetchall()}


async def copy_chunks(conn: Connection, rows: Iterable[bytes], signatures: Iterable[bytes]) -> None:
    """Rows in the binary format: of chunks, whose first fields are a ``chunk_head``, and ``signature_row``s."""
    await copy_bytes(conn, COPY_CHUNKS, b"".join([BINARY_HEAD, *rows, BINARY_END]))
    await copy_bytes(conn, COPY_SIGNATURES, b"".join([BINARY_HEAD, *signatures, BINARY_END]))


def chunk_head(
    doc_id: UUID, generation: int, id_: UUID, named: bytes, chunk_no: int, windows: int
) -> bytes:
    """The first fields of a chunk's row; ``named`` is the field of the container's id."""
    fixed_part = _CHUNK_HEAD.pack(_CHUNK_FIELDS, 16, doc_id.bytes, 4, generation, 16, id_.bytes)
    return fixed_part + named + _ADDRESS.pack(8, chunk_no, 4, windows)


def signature_row(named: bytes, chunk_no: int, bits: bytes) -> bytes:
    fixed_part = _SIGNATURE_TAIL.pack(8, chunk_no, 4 + len(bits), 8 * len(bits))
    return _SIGNATURE_HEAD + named + fixed_part + bits


_CHUNK_FIELDS: Final = 32
_CHUNK_HEAD: Final = struct.Struct("!hi16siii16s")
_ADDRESS: Final = struct.Struct("!iqii")
_SIGNATURE_HEAD: Final = (3).to_bytes(2, "big")
_SIGNATURE_TAIL: Final = struct.Struct("!iqii")


async def copy_pages(conn: Connection, rows: Iterable[Sequence[Any]]) -> None:
    await _copy(conn, COPY_PAGES, rows)


async def write_summaries(conn: Connection, summaries: Sequence[dict[str, Any]]) -> None:
    """Summaries of generations that are live now; older ones of these documents are replaced."""
    if summaries:
        await conn.execute(WRITE_SUMMARIES, {"rows": orjson.dumps(summaries).decode()})


async def write_extractions(conn: Connection, extractions: Sequence[dict[str, Any]]) -> None:
    """Page extractions of new generations."""
    if extractions:
        await conn.execute(WRITE_EXTRACTIONS, {"rows": orjson.dumps(extractions).decode()})


async def copy_refs(conn: Connection, rows: Iterable[Sequence[Any]]) -> None:
    await _copy(conn, COPY_REFS, rows)


async def copy_duplicates(conn: Connection, rows: Iterable[bytes]) -> None:
    """Rows in the text format."""
    await copy_bytes(conn, COPY_DUPLICATES, b"".join(rows))


async def present(conn: Connection, bucket: str, hashes: Iterable[str]) -> set[str]:
    """Those whose bytes are stored in this bucket."""
    cursor = await conn.execute(PRESENT, {"bucket": bucket, "hashes": sorted(set(hashes))})
    return {r["sha256"] for r in await cursor.fetchall()}


async def _copy(conn: Connection, statement: Any, rows: Iterable[Sequence[Any]]) -> None:
    async with conn.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            await copy.write_row(row)
