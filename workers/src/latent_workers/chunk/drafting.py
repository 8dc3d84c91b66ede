"""A parsed document as drafts, by its container's settings: what a job stores, and what a dry run counts."""

from __future__ import annotations

from latent_core.domain.chunk import DraftChunk, SourceType
from latent_core.domain.manifest.model import Chunker
from latent_core.models.embedding.port import Tokenizer
from latent_workers.chunk.chunker import chunk
from latent_workers.chunk.image import image_chunk, with_name
from latent_workers.parse.parsed import ParsedDocument


def drafts_of(
    parsed: ParsedDocument,
    source_type: SourceType,
    settings: Chunker,
    counter: Tokenizer,
    window: int,
) -> tuple[ParsedDocument, list[DraftChunk]]:
    """The drafts, and the text they are of: an image without words is its name. Blocking."""
    if source_type is SourceType.IMAGE:
        named = with_name(parsed)
        return named, [image_chunk(named, counter)]
    drafts = chunk(
        parsed,
        source_type=source_type,
        budget_tokens=settings.tokens(window),
        overlap=settings.overlap,
        table_rows=settings.table_rows,
        tokenizer=counter,
        code_lines=settings.code_lines,
        code_overlap=settings.code_overlap,
    )
    return parsed, drafts
