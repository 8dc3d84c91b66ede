"""Rows of generated chunks of live generations: read, replace, count.

Never those of a recording, whose transcript is its own text: they come and go with their generation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from latent_core.db.connection import Connection
from latent_core.domain.generated import FIRST_POSITION, GeneratedBy, GeneratedGroup, GeneratedKind
from latent_core.domain.ids import ChunkId, JobId

# ``windows`` is the largest number of points in any collection: deleting a point that is not there costs nothing.
OF_DOCUMENT: Final = f"""
SELECT c.doc_id, c.generation, c.chunk_no, c.id, c.position, c.page, c.content_hash, c.length, c.meta,
       greatest(c.windows, (SELECT max(n.windows) FROM point_counts n
                            WHERE n.container_id = c.container_id AND n.chunk_no = c.chunk_no)) AS windows
FROM chunks c JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE c.doc_id = %(doc_id)s AND c.generated = %(kind)s AND c.position >= {FIRST_POSITION} AND d.deleted_at IS NULL
  AND (%(pages)s::integer[] IS NULL OR c.page = ANY(%(pages)s))
ORDER BY c.position
"""

DELETE: Final = f"""
DELETE FROM chunks
WHERE container_id = %(container_id)s AND chunk_no = ANY(%(chunk_nos)s::bigint[]) AND position >= {FIRST_POSITION}
"""

# Equal texts of the same model and prompt keep their time.
RENEW: Final = """
UPDATE chunks SET provenance = jsonb_set(provenance, '{generated}', %(by)s)
WHERE container_id = %(container_id)s AND chunk_no = ANY(%(chunk_nos)s::bigint[])
  AND (provenance -> 'generated' ->> 'model', provenance -> 'generated' ->> 'prompt_version')
      IS DISTINCT FROM (%(model)s, %(prompt_version)s)
"""

COUNT: Final = "UPDATE documents SET live_chunks = live_chunks + %(n)s WHERE id = %(doc_id)s"

DOCUMENTS_WITH: Final = f"""
SELECT d.id FROM documents d
WHERE d.container_id = %(container_id)s AND d.deleted_at IS NULL AND d.live_generation IS NOT NULL
  AND (%(ids)s::uuid[] IS NULL OR d.id = ANY(%(ids)s)) AND (%(after)s::uuid IS NULL OR d.id > %(after)s)
  AND (EXISTS (SELECT 1 FROM chunks c WHERE c.doc_id = d.id AND c.generation = d.live_generation
               AND c.generated = ANY(%(kinds)s) AND c.position >= {FIRST_POSITION})
       OR %(group)s = 'summaries' AND EXISTS (SELECT 1 FROM summaries s WHERE s.doc_id = d.id)
       OR %(group)s = 'extraction' AND EXISTS (SELECT 1 FROM page_extractions e WHERE e.doc_id = d.id))
ORDER BY d.id
LIMIT %(limit)s
"""

CAPTIONS: Final = """
SELECT c.doc_id, c.page, string_agg(c.text, ' ' ORDER BY c.position) AS text
FROM chunks c JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE c.doc_id = ANY(%(doc_ids)s::uuid[]) AND c.generated = 'caption' AND c.page IS NOT NULL AND d.deleted_at IS NULL
GROUP BY c.doc_id, c.page
"""

EXISTING: Final = (
    "SELECT id FROM chunks WHERE container_id = %(container_id)s AND id = ANY(%(ids)s)"
)

TEXTS: Final = f"""
SELECT c.chunk_no, c.id, c.generation, coalesce(c.embed_text, c.embed_head || c.text) AS embed_text,
       coalesce(n.windows, c.windows) AS windows
FROM chunks c JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
LEFT JOIN point_counts n ON n.container_id = c.container_id AND n.chunk_no = c.chunk_no
                         AND n.collection_id = %(collection_id)s
WHERE c.doc_id = %(doc_id)s AND c.position >= {FIRST_POSITION} AND d.deleted_at IS NULL
  AND c.chunk_no > %(after)s
ORDER BY c.chunk_no
LIMIT %(limit)s
"""

# A worker that was frozen may write until its lease has expired, even if its job was ended.
MAY_WRITE: Final = """
SELECT 1 FROM jobs
WHERE id = %(job_id)s
  AND (state IN ('queued', 'running') OR finished_at > clock_timestamp() - make_interval(secs => %(seconds)s))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedRow:
    """A generated chunk, without its text."""

    doc_id: UUID
    generation: int
    chunk_no: int
    id: ChunkId
    position: int
    page: int | None
    content_hash: str
    length: int
    meta: dict[str, Any]
    windows: int


async def of_document(
    conn: Connection, doc_id: UUID, kind: GeneratedKind, pages: Sequence[int] | None = None
) -> list[GeneratedRow]:
    """Those of the live generation in the order of their positions, of all pages or some."""
    values = {"doc_id": doc_id, "kind": kind, "pages": None if pages is None else list(pages)}
    async with conn.cursor(row_factory=class_row(GeneratedRow)) as cursor:
        await cursor.execute(OF_DOCUMENT, values)
        return list(await cursor.fetchall())


async def delete(conn: Connection, container_id: str, chunk_nos: Sequence[int]) -> None:
    """Delete rows of generated chunks; never one of a source."""
    values = {"container_id": container_id, "chunk_nos": list(chunk_nos)}
    await conn.execute(DELETE, values)


async def renew(
    conn: Connection, container_id: str, chunk_nos: Sequence[int], by: GeneratedBy
) -> None:
    """Note that another model or prompt wrote the same texts."""
    if not chunk_nos:
        return
    values = {
        "container_id": container_id,
        "chunk_nos": list(chunk_nos),
        "by": Jsonb(by.model_dump(mode="json")),
        "model": by.model,
        "prompt_version": by.prompt_version,
    }
    await conn.execute(RENEW, values)


async def count(conn: Connection, doc_id: UUID, change: int) -> None:
    """Add to the number of live chunks of a document."""
    if change:
        await conn.execute(COUNT, {"doc_id": doc_id, "n": change})


async def documents_with(
    conn: Connection,
    container_id: str,
    group: GeneratedGroup,
    doc_ids: Sequence[UUID] | None,
    after: UUID | None,
    limit: int,
) -> list[UUID]:
    """Live documents that have chunks or rows of this group, in the order of their ids."""
    values = {
        "container_id": container_id,
        "group": group,
        "kinds": list(group.kinds),
        "ids": None if doc_ids is None else list(doc_ids),
        "after": after,
        "limit": limit,
    }
    return [row["id"] for row in await (await conn.execute(DOCUMENTS_WITH, values)).fetchall()]


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedChunkText:
    """What the vectors of a generated chunk are made of, and how many there are in a collection."""

    chunk_no: int
    id: ChunkId
    generation: int
    embed_text: str
    windows: int


async def texts(
    conn: Connection, doc_id: UUID, collection_id: int, *, after: int, limit: int
) -> list[GeneratedChunkText]:
    """Those of the live generation, in the order of their chunk_nos."""
    values = {"doc_id": doc_id, "collection_id": collection_id, "after": after, "limit": limit}
    async with conn.cursor(row_factory=class_row(GeneratedChunkText)) as cursor:
        await cursor.execute(TEXTS, values)
        return list(await cursor.fetchall())


async def existing(
    conn: Connection, container_id: str, chunk_ids: Sequence[ChunkId]
) -> set[ChunkId]:
    """Those of these chunks that have a row."""
    values = {"container_id": container_id, "ids": list(chunk_ids)}
    return {row["id"] for row in await (await conn.execute(EXISTING, values)).fetchall()}


async def may_be_written_by(conn: Connection, job: JobId, seconds: float) -> bool:
    """Whether a job is open, or ended less than ``seconds`` ago."""
    cursor = await conn.execute(MAY_WRITE, {"job_id": job, "seconds": seconds})
    return await cursor.fetchone() is not None


async def captions(conn: Connection, doc_ids: Sequence[UUID]) -> dict[tuple[UUID, int], str]:
    """The captions of visible documents, by document and page."""
    cursor = await conn.execute(CAPTIONS, {"doc_ids": list(doc_ids)})
    return {(row["doc_id"], row["page"]): row["text"] for row in await cursor.fetchall()}
