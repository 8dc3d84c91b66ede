"""What a refresh reads: texts to embed, a sample of them, their counts, originals to parse again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from latent_core.db.connection import Connection, only_row
from latent_core.db.spaces.space_points import LiveDocument, totals

TEXTS: Final = """
SELECT c.doc_id, c.generation, c.id, c.chunk_no, coalesce(c.embed_text, c.embed_head || c.text) AS embed_text,
       g.image_sha256 AS picture, c.windows,
       p.windows AS stored_windows
FROM unnest(%(ids)s::uuid[], %(generations)s::integer[]) AS w (doc_id, generation)
JOIN chunks c ON c.doc_id = w.doc_id AND c.generation = w.generation
LEFT JOIN point_counts p ON p.container_id = c.container_id AND p.chunk_no = c.chunk_no AND p.collection_id = %(collection_id)s
LEFT JOIN pages g ON c.modality = 'image' AND g.doc_id = c.doc_id AND g.generation = c.generation AND g.page = c.page
WHERE c.chunk_no > %(after)s
ORDER BY c.chunk_no
LIMIT %(limit)s
"""

# The same share of every document: its chunks have even positions between 0 and 1, shifted by a part of a
# step that depends on its id, so that short documents are sampled as often as long ones.
SAMPLE: Final = """
SELECT doc_id, generation, id, chunk_no, embed_text, picture
FROM (
    SELECT c.doc_id, c.generation, c.id, c.chunk_no, coalesce(c.embed_text, c.embed_head || c.text) AS embed_text,
           g.image_sha256 AS picture,
           (row_number() OVER (PARTITION BY c.doc_id ORDER BY md5(c.chunk_no::text))
            - ('x' || left(md5(c.doc_id::text), 8))::bit(32)::bigint / 4294967296.0)
           / count(*) OVER (PARTITION BY c.doc_id) AS place
    FROM chunks c JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
    LEFT JOIN point_counts p ON p.container_id = c.container_id AND p.chunk_no = c.chunk_no AND p.collection_id = %(collection_id)s
    LEFT JOIN pages g ON c.modality = 'image' AND g.doc_id = c.doc_id AND g.generation = c.generation AND g.page = c.page
    WHERE c.container_id = %(container_id)s AND d.deleted_at IS NULL AND coalesce(p.windows, c.windows) = 1
) placed
ORDER BY place, md5(doc_id::text), chunk_no
LIMIT %(limit)s
"""

COSTS: Final = """
SELECT count(*) AS chunks, coalesce(sum(c.windows), 0)::bigint AS texts, coalesce(sum(c.token_count), 0)::bigint AS tokens,
       count(*) FILTER (WHERE k.content_hash IS NOT NULL) AS cached,
       coalesce(sum(c.windows) FILTER (WHERE k.content_hash IS NOT NULL), 0)::bigint AS cached_texts,
       coalesce(sum(c.token_count) FILTER (WHERE k.content_hash IS NOT NULL), 0)::bigint AS cached_tokens
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
LEFT JOIN pages g ON %(reads_images)s AND c.modality = 'image' AND g.doc_id = c.doc_id
                  AND g.generation = c.generation AND g.page = c.page
LEFT JOIN embedding_cache k
  ON k.space = %(key)s
     AND k.content_hash = coalesce(g.image_sha256, encode(sha256(convert_to(coalesce(c.embed_text, c.embed_head || c.text), 'UTF8')), 'hex'))
WHERE c.container_id = %(container_id)s AND d.deleted_at IS NULL
"""

ORIGINALS: Final = """
SELECT d.id, d.uri, d.mime, d.meta, d.given_meta, d.validators, d.source_modified_at, d.source_mtime_ns, d.fetched_at,
       d.source_type, d.sha256 AS source_sha256, r.sha256, r.mime AS blob_mime, r.filename
FROM documents d
JOIN blob_refs r ON r.doc_id = d.id AND r.generation = d.live_generation AND r.role = 'original' AND r.part = 0
WHERE d.container_id = %(container_id)s AND d.deleted_at IS NULL AND d.parent_id IS NULL AND d.id > %(after)s
ORDER BY d.id
LIMIT %(limit)s
"""


@dataclass(frozen=True, slots=True)
class StoredText:
    """The input of a chunk's vectors."""

    doc_id: UUID
    generation: int
    id: UUID
    chunk_no: int
    embed_text: str
    picture: str | None
    """For an image chunk, the hash of its page image; None for a text, or if the page is not drawn."""
    points: int | None
    """Number of its points in the collection; None where it is not known."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Numbers of live chunks, of their texts and tokens for an embedder, and of chunks with cached vectors."""

    documents: int
    chunks: int
    texts: int
    tokens: int
    cached: int
    cached_texts: int
    cached_tokens: int


async def texts(
    conn: Connection,
    live_documents: Sequence[LiveDocument],
    collection_id: int,
    *,
    like_the_chunks: bool,
    after: int,
    limit: int,
) -> list[StoredText]:
    """The embedding inputs of the chunks of these generations, in chunk_no order.

    ``like_the_chunks``: the collection was written together with the chunks, so their rows give the number
    of points where no other row does.
    """
    values = {
        "ids": [d.id for d in live_documents],
        "generations": [d.generation for d in live_documents],
        "collection_id": collection_id,
        "after": after,
        "limit": limit,
    }
    return [
        _stored(row, _points(row, like_the_chunks=like_the_chunks))
        for row in await (await conn.execute(TEXTS, values)).fetchall()
    ]


def _stored(row: Mapping[str, Any], points: int | None) -> StoredText:
    return StoredText(
        row["doc_id"],
        row["generation"],
        row["id"],
        row["chunk_no"],
        row["embed_text"],
        row["picture"],
        points,
    )


def _points(row: Mapping[str, Any], *, like_the_chunks: bool) -> int | None:
    stored: int | None = row["stored_windows"]
    return row["windows"] if stored is None and like_the_chunks else stored


async def sample(
    conn: Connection, container_id: str, collection_id: int, limit: int
) -> list[StoredText]:
    """Live chunks of one point each, of every document about the same share; always the same ones."""
    values = {"container_id": container_id, "collection_id": collection_id, "limit": limit}
    return [_stored(row, 1) for row in await (await conn.execute(SAMPLE, values)).fetchall()]


async def costs(
    conn: Connection, container_id: str, key: str, *, reads_images: bool = False
) -> Costs:
    """Counts of a full re-embed by the model ``key``."""
    documents, _ = await totals(conn, container_id)
    values = {"container_id": container_id, "key": key, "reads_images": reads_images}
    row = await only_row(await conn.execute(COSTS, values))
    return Costs(documents=documents, **{name: int(value) for name, value in row.items()})


async def originals(
    conn: Connection, container_id: str, *, after: UUID, limit: int
) -> list[dict[str, Any]]:
    """Live documents with a stored original, in id order; records come with their corpus."""
    values = {"container_id": container_id, "after": after, "limit": limit}
    return await (await conn.execute(ORIGINALS, values)).fetchall()
