"""Chunks as they are stored, and their sizes."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from latent_core.domain.generated import GeneratedKind
from latent_core.wire.base import Envelope, PagedEnvelope
from latent_core.wire.search import PlaceView


class ChunkView(BaseModel):
    chunk_id: UUID
    doc_id: UUID
    source_uri: str
    file_hash: str | None
    """SHA-256 of the document's bytes; for a record, of its content."""
    chunk_no: int
    position: int
    modality: str
    source_type: str
    block_type: str
    text: str
    embed_text: str
    place: PlaceView
    parent_section: str | None
    key_path: str | None
    table_id: str | None
    row_group: int | None
    offsets: tuple[int, int]
    content_hash: str
    token_count: int
    windows: int
    """Number of its vectors."""
    duplicate_of: UUID | None
    """The earlier chunk with nearly the same text."""
    generated: GeneratedKind | None = None
    """What a model wrote about the document; None: read from the source. ``provenance.generated`` has the model, the version
    of its prompt and the time."""
    provenance: dict[str, Any]
    meta: dict[str, Any]
    indexed_at: datetime


class ChunkPage(PagedEnvelope):
    chunks: list[ChunkView]


class ChunkAnswer(Envelope):
    chunk: ChunkView


class SizeClass(BaseModel):
    """A class of a histogram; the last one has no upper bound."""

    lower_bound: int
    below: int | None
    chunks: int


class Distribution(BaseModel):
    min: int
    p50: int
    p95: int
    max: int
    histogram: list[SizeClass]


class ChunkSizes(BaseModel):
    chunks: int
    duplicates: int
    """Chunks with nearly the same text as an earlier one."""
    tokens: Distribution
    """Of the embedded text."""
    characters: Distribution
    """Of the raw text."""


class SizesAnswer(Envelope):
    total: ChunkSizes | None
    by_source_type: dict[str, ChunkSizes]
