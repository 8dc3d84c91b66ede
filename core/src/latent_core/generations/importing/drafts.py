"""What can be made of chunks before their documents have generations, while the step before is committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass
from uuid import UUID

import orjson

from latent_core.archive.batches import Batch
from latent_core.archive.records import ChunkRecord
from latent_core.domain import versions
from latent_core.domain.errors import Invalid
from latent_core.generations.importing.step import Target
from latent_core.keywords.analyser import analyse, term_vector
from latent_core.keywords.signature import signatures
from latent_core.registry.copying import fields


@dataclass(frozen=True, slots=True)
class Drafts:
    """What can be made of chunks before their documents have generations, while the step before is committed."""

    first: int
    """The number of the first chunk; the others follow."""
    tails: list[bytes]
    """Of their rows: what comes after the fields that a generation tells."""
    signatures: list[bytes]
    tsvs: list[str]
    lengths: list[int]


def draft_rows(target: Target, batch: Batch) -> list[Drafts]:
    """Drafts of a batch, part by part. ``Invalid`` for chunks and pages that belong to none of its documents."""
    languages = {record.doc_id: record.language for record in batch.documents}
    _check_members(batch, languages.keys())
    return [_draft(target, part.chunks, languages) for part in batch.parts if part.chunks]


def _check_members(batch: Batch, own: AbstractSet[UUID]) -> None:
    if any(page.doc_id not in own for page in batch.pages):
        raise Invalid(f"a page in batch {batch.number} of the archive belongs to no document of it")
    if any(chunk.doc_id not in own for part in batch.parts for chunk in part.chunks):
        raise Invalid(
            f"a chunk in batch {batch.number} of the archive belongs to no document of it"
        )


def _draft(target: Target, chunks: Sequence[ChunkRecord], languages: Mapping[UUID, str]) -> Drafts:
    tsvs, lengths = [chunk.tsv for chunk in chunks], [chunk.length for chunk in chunks]
    if target.header.analyser != versions.ANALYSER:
        analysed = [analyse(chunk.text, languages[chunk.doc_id]) for chunk in chunks]
        tsvs, lengths = [term_vector(one) for one in analysed], [one.length for one in analysed]
    rows = zip(chunks, tsvs, lengths, strict=True)
    return Drafts(
        chunks[0].n,
        [_tail(target, chunk, tsv, length) for chunk, tsv, length in rows],
        signatures([chunk.text for chunk in chunks]),
        tsvs,
        lengths,
    )


def _tail(target: Target, chunk: ChunkRecord, tsv: str, length: int) -> bytes:
    provenance = chunk.provenance
    if not target.same_space:
        space = target.container.space
        provenance = {**provenance, "embedder": space.embedder, "embedder_version": space.version}
    told = fields(
        (
            chunk.ordinal,
            chunk.modality.value,
            chunk.source_type.value,
            chunk.block_type.value,
            chunk.text,
            chunk.embed_text,
            chunk.page,
            chunk.page_end,
            chunk.line_start,
            chunk.line_end,
            chunk.heading_path,
            chunk.key_path,
            chunk.parent_section,
            chunk.table_id,
            chunk.row_group,
            chunk.offset_start,
            chunk.offset_end,
            chunk.content_hash,
            chunk.token_count,
            tsv,
            length,
            orjson.dumps(provenance).decode(),
            orjson.dumps(chunk.meta).decode(),
            chunk.created_at,
        )
    )
    return f"\t{told}\n".encode()
