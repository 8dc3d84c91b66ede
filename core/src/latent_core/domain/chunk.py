"""A chunk, the unit of retrieval, with its exact place; and the types of vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from latent_core.domain.ids import ChunkId, Sha256, chunk_id


class Modality(StrEnum):
    TEXT = "text"
    IMAGE = "image"


class SourceType(StrEnum):
    CODE = "code"
    MARKDOWN = "markdown"
    PDF = "pdf"
    WEB = "web"
    IMAGE = "image"
    YAML = "yaml"
    JSON = "json"
    TEXT = "text"
    CONVERSATION = "conversation"
    DOCUMENT = "document"
    """Word, OpenDocument text, RTF, EPUB."""
    SHEET = "sheet"
    """Excel, CSV."""
    SLIDES = "slides"
    MAIL = "mail"
    NOTEBOOK = "notebook"
    SUBTITLES = "subtitles"
    AUDIO = "audio"
    """Recordings, also of video: a configured model transcribes their speech."""


class BlockType(StrEnum):
    PARAGRAPH = "paragraph"
    HEADING = "heading"
    TABLE = "table"
    LIST = "list"
    CODE = "code"


FRONT_MATTER: Final = "front_matter"
"""In the meta of a document's first chunk: words of its front matter, which are indexed with the chunk."""


TIMESTAMPS: Final = "timestamps"
"""In the meta of a chunk of a recording: its begin and end in seconds."""


def embedded_parts(text: str, embed_text: str) -> tuple[str | None, str | None]:
    """How ``embed_text`` is stored: whole, or as what comes before ``text`` at its end; the other one is None."""
    return (
        (None, embed_text.removesuffix(text)) if embed_text.endswith(text) else (embed_text, None)
    )


def keyword_fields(meta: Mapping[str, Any]) -> str:
    """Words of a chunk for the keyword index that are not in its text, or that count more than once: front matter, and
    the name of a definition where it begins. Texts that use a name contain it as often as the one that defines it."""
    symbol = "" if meta.get("continued") else meta.get("symbol", "")
    return meta.get(FRONT_MATTER, "") or f"{symbol} {symbol}".strip()


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """The position of a chunk in its source. Pages and lines count from 1, offsets from 0 in characters."""

    offset_start: int
    offset_end: int
    line_start: int | None = None
    line_end: int | None = None
    page: int | None = None
    page_end: int | None = None
    heading_path: tuple[str, ...] = ()
    key_path: str | None = None
    parent_section: str | None = None
    table_id: str | None = None
    row_group: int | None = None


@dataclass(frozen=True, slots=True)
class DraftChunk:
    """A chunk as the chunker makes it, before it belongs to a generation."""

    text: str
    """The raw evidence, exactly as in the source."""
    embed_text: str
    """What the embedder reads; for tables a deterministic summary."""
    place: SourcePlace
    source_type: SourceType
    block_type: BlockType
    content_hash: Sha256
    """Of ``text``."""
    token_count: int
    """Tokens of ``embed_text`` by the embedder's own tokenizer."""
    modality: Modality = Modality.TEXT
    meta: dict[str, Any] = field(default_factory=dict)
    picture: Sha256 | None = None
    """Of an image chunk: the hash of its page image, set when the page is drawn."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk of one generation of a document."""

    id: ChunkId
    position: int
    """Position in its generation, from 0."""
    chunk_no: int
    """Number in its container, never reused; the keyword index and the vectors refer to chunks by it."""
    draft: DraftChunk


def number(doc_id: UUID, drafts: Sequence[DraftChunk], chunk_nos: Iterable[int]) -> list[Chunk]:
    """Give each draft its id, position and chunk_no. ``chunk_nos`` yields at least ``len(drafts)`` numbers."""
    seen: Counter[str] = Counter()
    chunks: list[Chunk] = []
    for position, (draft, chunk_no) in enumerate(zip(drafts, chunk_nos, strict=False)):
        occurrence = seen[draft.content_hash]
        seen[draft.content_hash] += 1
        chunks.append(
            Chunk(
                id=chunk_id(doc_id, draft.content_hash, occurrence),
                position=position,
                chunk_no=chunk_no,
                draft=draft,
            )
        )
    if len(chunks) != len(drafts):
        raise ValueError(f"{len(drafts)} drafts but only {len(chunks)} chunk numbers")
    return chunks
