"""A search hit: a chunk with its score, reasons, position, age and lineage."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, Field


class Provenance(BaseModel):
    """Where a chunk and its vector come from (DESIGN §12.5)."""

    source_uri: str
    sha256: str | None = None
    fetched_at: datetime | None = None
    handler: str
    handler_version: str
    embedder: str
    embedder_version: str
    page: int | None = None
    generation: int


class Reason(BaseModel):
    """One reason for a hit: the channel that found it, at which rank and score."""

    channel: str
    rank: int
    score: float
    term: str | None = None
    """The entry of ``must_terms`` that it contains."""
    regex: str | None = None
    """The entry of ``regexes`` that it matches."""
    path: str | None = None
    """The ``path_like`` that its path matches."""
    count: int | None = None
    """Number of matches, up to 100."""
    lines: list[int] = Field(default_factory=list)
    """Lines of the source with a match; the first ones."""


class PlaceView(BaseModel):
    """Position of the chunk; pages and lines count from 1."""

    page: int | None = None
    page_end: int | None = None
    line_start: int | None = None
    line_end: int | None = None
    heading_path: str = ""
    """``H1 > H2 > H3``"""
    key_path: str | None = None
    table_id: str | None = None
    row_group: int | None = None


class Neighbour(BaseModel):
    """A chunk before or after the hit in its document."""

    chunk_id: UUID
    text: str
    place: PlaceView


class AlsoInDocument(BaseModel):
    """Another chunk of the same document that matched."""

    chunk_id: UUID
    score: float
    place: PlaceView


class Duplicate(BaseModel):
    """A matching chunk of another document with nearly the same text as the hit."""

    doc_id: UUID
    chunk_id: UUID
    title: str
    source_uri: str
    score: float
    place: PlaceView


class Hit(BaseModel):
    container_id: str
    doc_id: UUID
    chunk_id: UUID
    external_id: str | None = None
    modality: str
    source_type: str
    block_type: str
    score: float
    """The best score among the hit and its duplicates; freshness may raise it above 1."""
    base_score: float
    """0..1: the fused score relative to the maximum possible score."""
    freshness: float = 0.0
    """0..1: ``score`` is the score before freshness times (1 + this); 0 if the container does not use freshness."""
    title: str
    snippet: str
    """An exact excerpt of the source."""
    highlights: list[tuple[int, int]] = Field(default_factory=list)
    """Character ranges of the query's words in ``snippet``."""
    rendered_snippet: str
    """``snippet`` with the words marked as ``**word**``, by the container's template."""
    text: str | None = None
    uri: str | None = None
    """Page image, presigned; the same as ``page_uri``."""
    page_uri: str | None = None
    page_uris: list[str] = Field(default_factory=list)
    page_image: Literal["ready", "pending", "failed", "none"] = "none"
    """``pending``: a job still draws it."""
    page_image_cause: str | None = None
    """Why it is missing, if drawing failed."""
    page_pdf_uri: str | None = None
    """The page as a single-page PDF, presigned; only if it was made before (``/v1/documents/{doc}/pages/{n}/pdf``)."""
    read_as: Literal["text", "image"] = "text"
    """Whether the image at ``page_uri`` shows more than the text."""
    visual_importance: float | None = None
    """0..1: the share of that page that is picture; None while it is not known."""
    offsets: tuple[int, int]
    """Characters in the source text."""
    place: PlaceView
    source_path: str
    source_uri: str
    why: list[Reason] = Field(default_factory=list)
    timestamps: list[datetime] = Field(default_factory=list)
    """Modified, fetched, indexed: the known ones, in this order."""
    modified_at: datetime | None = None
    fetched_at: datetime | None = None
    indexed_at: datetime | None = None
    provenance: Provenance
    meta: dict[str, Any] = Field(default_factory=dict)
    also_in_document: list[AlsoInDocument] = Field(default_factory=list)
    duplicates: list[Duplicate] = Field(default_factory=list)
    before: list[Neighbour] = Field(default_factory=list)
    """In the order of the document, as many as requested."""
    after: list[Neighbour] = Field(default_factory=list)
