"""The format of an archive: names of its members and records of their lines.

export.json                        the header: which container, and how it was exported
manifest.json  [golden.json]
batches/000000/blobs/<sha256>      bytes that the batch's documents refer to, once per archive
batches/000000/documents.jsonl     complete documents: their chunks, pages and vectors are in the same batch
batches/000000/pages.jsonl
batches/000000/chunks-0000.jsonl   numbered through the whole archive, in the order of their chunk_nos
batches/000000/vectors-0000.f32    one row per window of those chunks, float32, little-endian
index.json                         name, length, lines and SHA-256 of every member before it, and the totals
COMPLETE                           SHA-256 of index.json; without it the archive is incomplete

The seal follows the tar. It covers the bytes of the file, not its unpacked contents.
"""

from __future__ import annotations

import re
import struct
from datetime import datetime
from typing import Annotated, Any, Final, Literal
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from latent_core.domain.chunk import BlockType, Modality, SourceType
from latent_core.domain.generated import GeneratedKind
from latent_core.domain.manifest.model import Manifest
from latent_core.domain.origin import Origin
from latent_core.domain.page_words import MAX_WORDS, PageWord
from latent_core.wire.sources import SourceView

FORMAT: Final = "latent-container"
FORMAT_VERSION: Final = 2
READABLE_VERSIONS: Final = (1, 2)
"""Version 1 has no generated chunks, summaries and page extractions."""
MEDIA_TYPE: Final = "application/zstd"
SUFFIX: Final = ".latent.tar.zst"

SEAL: Final = struct.Struct("<II32s")
"""The last frame, which other tools skip: the SHA-256 of all bytes before it. A frame's own checksum covers only its
unpacked contents, so changed bits in a frame header could pass."""
SEAL_MAGIC: Final = 0x184D2A50
"""Magic number of a skippable zstd frame."""
SEAL_BYTES: Final = 32

HEADER: Final = "export.json"
MANIFEST: Final = "manifest.json"
GOLDEN: Final = "golden.json"
INDEX: Final = "index.json"
MARKER: Final = "COMPLETE"

BATCH: Final = re.compile(
    r"batches/(\d{6})/(?:(documents|pages)\.jsonl|(chunks|vectors)-(\d{4})\.(?:jsonl|f32)|blobs/([0-9a-f]{64}))"
)
"""Groups: the batch; documents or pages; chunks or vectors and their part; a blob's hash."""

Sha = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0)]


LINEAGE: Final = ("handler", "handler_version", "embedder", "embedder_version")
"""What a hit tells of its chunk."""


def _lineage(value: dict[str, Any]) -> dict[str, Any]:
    for key in LINEAGE:
        if not isinstance(value.get(key), str):
            raise ValueError(f"lacks '{key}'")
    return value


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SpaceRecord(_Record):
    """What the vectors were made by."""

    embedder: str
    version: str
    dims: Annotated[int, Field(ge=1, le=65_536)]


class Header(_Record):
    format: str
    format_version: int
    container_id: str
    created_at: datetime
    space: SpaceRecord
    handler: str
    """``versions.HANDLER`` of the exporting release."""
    analyser: int
    """``versions.ANALYSER``: if it differs, the import computes the term vectors again."""
    vectors: bool
    blobs: bool
    """False: the file contains hashes of blobs but not their bytes."""
    sources: list[SourceView] = Field(default_factory=list)
    """Which folders its documents are synced from; absent if there are none."""


class RefRecord(_Record):
    """A reference of a document to a blob."""

    role: Annotated[str, Field(pattern="^(original|page_image|page_pdf|thumbnail)$")]
    part: Count
    sha256: Sha
    bytes: Count
    mime: str
    filename: str


class SummaryRecord(_Record):
    """What a language model made of a document (``latent_core.db.documents.summaries``)."""

    state: Literal["done", "failed", "skipped"]
    front_matter: dict[str, Any]
    text: str
    model: str
    prompt_version: str
    input_hash: str
    raw: str | None = None
    cause: dict[str, Any] | None = None
    input_tokens: Count
    output_tokens: Count
    cost: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    created_at: datetime


class ExtractionRecord(_Record):
    """What a language model made of a page (``latent_core.db.documents.page_extractions``)."""

    state: Literal["done", "failed"]
    extraction: dict[str, Any] | None = None
    visual_importance: Annotated[int | None, Field(ge=1, le=5)] = None
    raw: str | None = None
    cause: dict[str, Any] | None = None
    model: str
    prompt_version: str
    version: str
    page_hash: str
    next_page: int | None = None
    pdf_sha256: str | None = None
    page_pdf_sha256: str | None = None
    next_page_pdf_sha256: str | None = None
    input_tokens: Count
    output_tokens: Count
    cost: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    created_at: datetime


class DocumentRecord(_Record):
    """A live document. Its id is derived again from the container's and the uri when it is imported."""

    doc_id: UUID
    uri: Annotated[str, Field(min_length=1)]
    parent_uri: str | None = None
    external_id: str | None = None
    mime: str
    source_type: SourceType
    title: str
    sha256: Sha
    bytes: Count
    meta: dict[str, Any]
    live_chunks: Count
    language: str
    fingerprint: str | None
    recipe: str | None = None
    """The ending of a recipe that was its container's own when it was written; None of an older one."""
    given_meta: str | None = None
    validators: dict[str, Any] | None = None
    source_modified_at: datetime | None
    source_mtime_ns: int | None
    first_fetched_at: datetime | None
    fetched_at: datetime
    created_at: datetime
    origin: Origin = Origin.FILE
    written_by: str | None = None
    token_name: str | None = None
    written_at: datetime | None = None
    session: str | None = None
    version: Annotated[int, Field(ge=1)] = 1
    superseded_by: str | None = None
    """The uri of the document that replaces it."""
    superseded_at: datetime | None = None
    expires_at: datetime | None = None
    refs: list[RefRecord] = Field(default_factory=list)
    summary: SummaryRecord | None = None


class ChunkRecord(_Record):
    doc_id: UUID
    n: Count
    """Its number in the archive, in the order of the chunk_nos."""
    generated: GeneratedKind | None = None
    """None: read from the source."""
    ordinal: Count
    modality: Modality
    source_type: SourceType
    block_type: BlockType
    text: str
    embed_text: str
    page: int | None = None
    page_end: int | None = None
    line_start: int | None = None
    line_end: int | None = None
    heading_path: list[str] = Field(
        default_factory=list
    )  # a plain [] would be copied deeply, slowly
    key_path: str | None = None
    parent_section: str | None = None
    table_id: str | None = None
    row_group: int | None = None
    offset_start: int
    offset_end: int
    content_hash: Sha
    token_count: int
    windows: Annotated[int, Field(ge=0, le=100_000)]
    tsv: str
    """The term vector, as Postgres writes it."""
    length: Count
    provenance: Annotated[dict[str, Any], AfterValidator(_lineage)]
    meta: dict[str, Any] = Field(default_factory=dict)
    created_at: datetime
    signature: Annotated[str | None, Field(pattern="^[0-9a-f]{64}$")] = None
    """Of its vector, when near-duplicates were judged; ``original`` is the number of the chunk it repeats."""
    original: Count | None = None


class PageRecord(_Record):
    """A page, with what a line of ``pages.jsonl`` tells (CONTRACT); ``uri`` is the image's place in the archive."""

    doc_id: UUID
    page: Annotated[int, Field(ge=1)]
    uri: str | None
    sha256: Sha | None
    bytes: int | None
    width: int | None
    height: int | None
    source_pdf: str | None
    source_file: str
    pdf_sha256: Sha | None = None
    text: str
    line_start: int | None = None
    line_end: int | None = None
    visual: float | None = None
    words: Annotated[tuple[PageWord, ...] | None, Field(max_length=MAX_WORDS)] = None
    """As OCR read them, with their boxes."""
    extraction: ExtractionRecord | None = None


class MemberRecord(_Record):
    name: str
    bytes: Count
    sha256: Sha
    records: Count = 0


class Totals(_Record):
    """What the archive holds; counted again when it is read."""

    documents: Count = 0
    chunks: Count = 0
    pages: Count = 0
    vectors: Count = 0
    blobs: Count = 0
    batches: Count = 0


class ArchiveIndex(_Record):
    members: list[MemberRecord]
    totals: Totals


class VerifiedArchive(BaseModel):
    """An archive that was read to its end and found whole."""

    header: Header
    manifest: Manifest
    golden: dict[str, Any] | None
    totals: Totals
