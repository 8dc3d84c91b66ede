"""The rows of a step, made outside its transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from latent_core.generations.importing.drafts import Drafts
from latent_core.generations.importing.step import Step, Target
from latent_core.keywords import postings
from latent_core.keywords.packing import Columns
from latent_core.keywords.vector_fields import read_vectors
from latent_core.registry.copying import text_field
from latent_core.registry.importing import chunk_head, signature_row


@dataclass(frozen=True, slots=True)
class Written:
    """Rows of a step, ready to be copied; made outside the transaction, since that takes a while."""

    docs: list[UUID]
    """The document of each of the rows that follow."""
    chunks: list[bytes]
    signatures: list[bytes]
    columns: Columns
    packed: postings.Prepared
    """Of all ``columns``: most often all documents of a step are taken."""
    likenesses: list[bytes]
    unjudged: list[tuple[UUID, int]]


def write_rows(target: Target, step: Step, drafts: Sequence[Drafts]) -> Written:
    """Chunks as rows, with their terms; the drafts are of all chunks that the step has read."""
    first = drafts[0].first if drafts else 0
    tails = [tail for one in drafts for tail in one.tails]
    bits = [one for each in drafts for one in each.signatures]
    places = [one.chunk.n - first for one in step.chunks]
    columns, vectors = _columns(step, drafts, places)
    docs = [one.document.doc_id for one in step.chunks]
    container_id = target.container.id
    written = Written(docs, [], [], columns, postings.prepare(container_id, columns), [], [])
    named = text_field(container_id)
    rows = zip(step.chunks, places, step.windows, vectors, strict=True)
    for one, place, windows, vector in rows:
        document = one.document
        head = chunk_head(document.doc_id, document.generation, one.id, named, one.ord, windows)
        written.chunks.append(head + tails[place] + vector)
        written.signatures.append(signature_row(named, one.ord, bits[place]))
        chunk = one.chunk
        if target.founded and target.same_space and chunk.signature is not None:
            original = "\\N" if chunk.original is None else chunk.original
            row = f"{container_id}\t{one.ord}\t\\\\x{chunk.signature}\t{original}\n"
            written.likenesses.append(row.encode())
        else:
            written.unjudged.append((one.document.doc_id, one.ord))
    return written


def _columns(
    step: Step, drafts: Sequence[Drafts], places: Sequence[int]
) -> tuple[Columns, list[bytes]]:
    """Terms of a step's chunks, and their term vectors as fields: of all at once, so that each term is looked up once."""
    tsvs = [tsv for one in drafts for tsv in one.tsvs]
    lengths = [length for one in drafts for length in one.lengths]
    counted, vectors = read_vectors([tsvs[place] for place in places])
    columns = Columns(
        [one.ord for one in step.chunks],
        [lengths[place] for place in places],
        [one.document.record.language for one in step.chunks],
        counted,
    )
    return columns, vectors
