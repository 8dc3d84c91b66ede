"""Image chunks: each drawn page of a document, and each image, as a chunk for embedders that read images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from latent_core.domain.chunk import BlockType, DraftChunk, Modality, SourcePlace, SourceType
from latent_core.domain.ids import Sha256, content_hash
from latent_core.models.embedding.port import Tokenizer
from latent_workers.chunk.structure import has_words
from latent_workers.parse.parsed import ParsedDocument


def page_chunks(
    parsed: ParsedDocument,
    pictures: Mapping[int, Sha256],
    source_type: SourceType,
    tokenizer: Tokenizer,
) -> list[DraftChunk]:
    """A chunk for each page in ``pictures``. Its text is the page's text, for the keyword search; a page without
    words gets the document's title and its number."""
    drafts: list[DraftChunk] = []
    start = 0
    for page in parsed.pages:
        end = start + len(page.text)
        if page.number in pictures:
            name = f"{parsed.title or 'document'}, page {page.number}"
            text = page.text if has_words(page.text) else name
            drafts.append(
                DraftChunk(
                    text=text,
                    embed_text=text,
                    place=SourcePlace(start, end, page=page.number, page_end=page.number),
                    source_type=source_type,
                    block_type=BlockType.PARAGRAPH,
                    content_hash=content_hash(text),
                    token_count=0,
                    modality=Modality.IMAGE,
                    picture=pictures[page.number],
                )
            )
        start = end + 1  # one character stands between two pages
    return _counted(drafts, tokenizer)


def _counted(drafts: Sequence[DraftChunk], tokenizer: Tokenizer) -> list[DraftChunk]:
    counts = tokenizer.count([draft.embed_text for draft in drafts]) if drafts else []
    return [replace(draft, token_count=n) for draft, n in zip(drafts, counts, strict=True)]


NAMELESS = "image"
"""The text of an image without words and without a name."""


def with_name(parsed: ParsedDocument) -> ParsedDocument:
    """``parsed``; without words in the image, its name is its text."""
    if has_words(parsed.text):
        return parsed
    return replace(parsed, text=parsed.title or NAMELESS, blocks=())


def image_chunk(parsed: ParsedDocument, tokenizer: Tokenizer) -> DraftChunk:
    """One chunk with all of ``parsed.text``; for embedders of text, after the title."""
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
