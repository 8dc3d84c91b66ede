"""An image is one chunk: the text it shows, or its name."""

from __future__ import annotations

from dataclasses import replace

from latent_core.domain.chunk import BlockType, DraftChunk, Modality, SourcePlace, SourceType
from latent_core.domain.ids import content_hash
from latent_core.models.embedding.port import Tokenizer
from latent_workers.chunk.sections import has_words
from latent_workers.parse.parsed import ParsedDocument

NAMELESS = "image"
"""What is embedded of an image that neither shows nor is called anything."""


def with_name(parsed: ParsedDocument) -> ParsedDocument:
    """``parsed``; without words in the picture, its name is its text."""
    if has_words(parsed.text):
        return parsed
    return replace(parsed, text=parsed.title or NAMELESS, blocks=())


def image_chunk(parsed: ParsedDocument, tokenizer: Tokenizer) -> DraftChunk:
    """The whole of ``parsed.text``; the embedder, which reads text, reads the title before it."""
    text = parsed.text
    title = parsed.title or ""
    embed_text = f"{title}\n\n{text}" if title and title not in text else text
    (tokens,) = tokenizer.count([embed_text])
    return DraftChunk(
        text=text,
        embed_text=embed_text,
        place=SourcePlace(offset_start=0, offset_end=len(text), page=1, page_end=1),
        source_type=SourceType.IMAGE,
        block_type=BlockType.PARAGRAPH,
        content_hash=content_hash(text),
        token_count=tokens,
        modality=Modality.IMAGE,
    )
