"""The rows of a step, made outside its transaction: what needs no generation while the step before is committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass
from uuid import UUID

import orjson

from latent_core.bm25 import postings
from latent_core.bm25.analyser import AnalysedText, analyse, term_vector
from latent_core.bm25.exact import signatures
from latent_core.bm25.names import defined_names
from latent_core.bm25.packing import KeywordColumns
from latent_core.bm25.summary_terms import of_summary
from latent_core.bm25.term_vectors import read_vectors
from latent_core.db.copying import int_field, json_field, text_field, texts_field, time_field
from latent_core.db.transfer.import_rows import chunk_head, signature_row
from latent_core.domain import versions
from latent_core.domain.chunk import embedded_parts, keyword_fields
from latent_core.domain.errors import Invalid
from latent_core.domain.generated import FIRST_POSITION, GeneratedKind
from latent_core.transfer.batches import ArchiveBatch, ArchivePart
from latent_core.transfer.records import ChunkRecord
from latent_core.transfer.selection import ImportTarget, Step


@dataclass(frozen=True, slots=True)
class Drafts:
    """What can be made of chunks before their documents have generations, while the step before is committed."""

    first: int
    """The number of the first chunk; the others follow."""
    tails: list[bytes]
    """Of their rows: what comes between the fields that a generation tells and the term vector."""
    signatures: list[bytes]
    tsvs: list[str]
    lengths: list[int]


def draft_rows(target: ImportTarget, batch: ArchiveBatch) -> list[Drafts]:
    """Drafts of a batch, part by part. ``Invalid`` for chunks and pages that belong to none of its documents."""
    languages = {record.doc_id: record.language for record in batch.documents}
    _check_members(batch, languages.keys())
    return [_draft(target, part, languages) for part in batch.parts if part.chunks]


def _check_members(batch: ArchiveBatch, own: AbstractSet[UUID]) -> None:
    if any(page.doc_id not in own for page in batch.pages):
        raise Invalid(
            f"A page in batch {batch.number} of the archive belongs to no document of the batch."
        )
    if any(chunk.doc_id not in own for part in batch.parts for chunk in part.chunks):
        raise Invalid(
            f"A chunk in batch {batch.number} of the archive belongs to no document of the batch."
        )


def _draft(target: ImportTarget, part: ArchivePart, languages: Mapping[UUID, str]) -> Drafts:
    chunks = part.chunks
    anew = not target.same_space or part.vectors is None
    tsvs, lengths = [chunk.tsv for chunk in chunks], [chunk.length for chunk in chunks]
    if target.header.analyser != versions.ANALYSER:
        analysed = [_analysed(chunk, languages[chunk.doc_id]) for chunk in chunks]
        tsvs, lengths = [term_vector(one) for one in analysed], [one.length for one in analysed]
    return Drafts(
        chunks[0].n,
        [_tail(target, *one, anew=anew) for one in zip(chunks, lengths, strict=True)],
        signatures([chunk.text for chunk in chunks]),
        tsvs,
        lengths,
    )


def _analysed(chunk: ChunkRecord, language: str) -> AnalysedText:
    fields, names = keyword_fields(chunk.meta), defined_names(chunk.meta)
    analysed = analyse(chunk.text, language, fields, names)
    return of_summary(analysed) if chunk.generated is GeneratedKind.SUMMARY else analysed


def _tail(target: ImportTarget, chunk: ChunkRecord, length: int, *, anew: bool) -> bytes:
    provenance = chunk.provenance
    if anew:
        space = target.container.space
        provenance = {**provenance, "embedder": space.embedder, "embedder_version": space.version}
    return b"".join(
        (
            int_field(chunk.ordinal),
            text_field(chunk.modality.value),
            text_field(chunk.source_type.value),
            text_field(chunk.block_type.value),
            text_field(chunk.text),
            *map(text_field, embedded_parts(chunk.text, chunk.embed_text)),
            int_field(chunk.page),
            int_field(chunk.page_end),
            int_field(chunk.line_start),
            int_field(chunk.line_end),
            texts_field(chunk.heading_path),
            text_field(chunk.key_path),
            text_field(chunk.parent_section),
            text_field(chunk.table_id),
            int_field(chunk.row_group),
            int_field(chunk.offset_start),
            int_field(chunk.offset_end),
            text_field(chunk.content_hash),
            int_field(chunk.token_count),
            int_field(length),
            json_field(orjson.dumps(provenance)),
            json_field(orjson.dumps(chunk.meta)),
            time_field(chunk.created_at),
            text_field(None if chunk.generated is None else chunk.generated.value),
        )
    )


@dataclass(frozen=True, slots=True)
class StepRows:
    """Rows of a step, ready to be copied; made outside the transaction, since that takes a while."""

    docs: list[UUID]
    """The document of each of the rows that follow."""
    chunks: list[bytes]
    signatures: list[bytes]
    columns: KeywordColumns
    packed: postings.PreparedPostings | None
    """Of all ``columns``: most often all documents of a step are taken. None for a new container, whose postings are
    written for several steps together."""
    duplicates: list[bytes]
    dedup_pending: list[tuple[UUID, int]]


def write_rows(target: ImportTarget, step: Step, drafts: Sequence[Drafts]) -> StepRows:
    """Chunks as rows, with their terms; the drafts are of all chunks that the step has read."""
    first = drafts[0].first if drafts else 0
    tails = [tail for one in drafts for tail in one.tails]
    bits = [one for each in drafts for one in each.signatures]
    places = [one.chunk.n - first for one in step.chunks]
    columns, vectors = _columns(step, drafts, places)
    docs = [one.document.doc_id for one in step.chunks]
    container_id = target.container.id
    packed = None if target.founded else postings.prepare(container_id, columns)
    written = StepRows(docs, [], [], columns, packed, [], [])
    named = text_field(container_id)
    rows = zip(step.chunks, places, step.windows, vectors, strict=True)
    for one, place, windows, vector in rows:
        document = one.document
        head = chunk_head(
            document.doc_id, document.generation, one.id, named, one.chunk_no, windows
        )
        written.chunks.append(head + tails[place] + vector)
        written.signatures.append(signature_row(named, one.chunk_no, bits[place]))
        chunk = one.chunk
        if target.founded and target.same_space and chunk.signature is not None:
            original = "\\N" if chunk.original is None else chunk.original
            row = f"{container_id}\t{one.chunk_no}\t\\\\x{chunk.signature}\t{original}\n"
            written.duplicates.append(row.encode())
        elif chunk.ordinal < FIRST_POSITION:
            written.dedup_pending.append((one.document.doc_id, one.chunk_no))
    return written


def _columns(
    step: Step, drafts: Sequence[Drafts], places: Sequence[int]
) -> tuple[KeywordColumns, list[bytes]]:
    """Terms of a step's chunks, and their term vectors as fields: of all at once, so that each term is looked up once."""
    tsvs = [tsv for one in drafts for tsv in one.tsvs]
    lengths = [length for one in drafts for length in one.lengths]
    counted, vectors = read_vectors([tsvs[place] for place in places])
    columns = KeywordColumns(
        [one.chunk_no for one in step.chunks],
        [lengths[place] for place in places],
        [one.document.record.language for one in step.chunks],
        counted,
    )
    return columns, vectors
