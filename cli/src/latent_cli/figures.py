"""The figures of a dry run: chunks per source type and the estimated cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic import BaseModel

from latent_client.folder import SkippedFile
from latent_core.domain.chunk import DraftChunk
from latent_workers.parse.parsed import ParsedDocument

BUCKETS: Final = (32, 64, 128, 256, 512, 1024)
"""Exclusive upper bounds of the histogram's bars, in tokens. The last bar has none."""


class HistogramBar(BaseModel):
    """Chunks of ``min_tokens`` to ``max_tokens`` tokens, both included."""

    min_tokens: int
    max_tokens: int | None
    chunks: int


class DryRunFigures(BaseModel):
    """Figures of one source type, or of all of them."""

    files: int = 0
    documents: int = 0
    """More than ``files`` if a file is a corpus."""
    chunks: int = 0
    tokens: int = 0
    """Tokens of all chunks, counted by the embedder's tokenizer if it is available."""
    tokens_min: int | None = None
    tokens_avg: float | None = None
    tokens_max: int | None = None
    histogram: list[HistogramBar] = []
    tables: int = 0
    pages: int = 0
    """Pages of sources that have pages. Other sources are rendered after the ingest."""
    scanned_pages: int = 0
    """Pages and images that need OCR. Their text is not counted."""


class Estimate(BaseModel):
    """Estimated duration in seconds, and the cost of a remote embedder."""

    parse_seconds: float
    ocr_seconds: float
    embed_seconds: float | None
    store_seconds: float
    """Terms, signatures and the exchanges with database and gateway."""
    total_seconds: float | None
    """Until everything is searchable."""
    pages_seconds: float
    """To draw the page images, after the texts are searchable."""
    cost: float | None
    """Price of the tokens to embed; 0 for a local embedder, None without a price."""
    price_per_million: float | None
    basis: str
    """Source of the rate of embedding."""
    notes: list[str] = []
    """What else was measured, and on how much."""


class DryRun(BaseModel):
    container_id: str
    embedder: str
    tokenizer: str
    """The tokenizer that counts the tokens."""
    types: dict[str, DryRunFigures]
    total: DryRunFigures
    to_send: int
    """New or changed files."""
    unchanged: int
    would_delete: int
    ignored: int
    embedding_texts: int
    """Maximum number of texts to embed for the files to send. Cached texts cost nothing."""
    embedding_tokens: int
    estimate: Estimate
    would_fail: list[SkippedFile] = []
    """Files and lines of corpora that cannot be ingested, with the reason."""
    would_fail_more: int = 0
    """Number of failures after the first thousand."""
    skipped: list[SkippedFile] = []
    unread: dict[str, int] = {}
    """Files of types that no parser reads, by type, in all folders."""
    checkouts: list[str] = []
    """Nested repositories and work trees, which are not read."""
    kept: list[str] = []
    """Reasons why documents of missing files would not be deleted."""


@dataclass(slots=True)
class SourceFigures:
    """Running totals of one source type, in constant memory."""

    files: int = 0
    documents: int = 0
    tables: int = 0
    pages: int = 0
    scanned: int = 0
    sizes: Counter[int] = field(default_factory=Counter)
    """Token count to the number of chunks of that size."""

    def add(self, parsed: ParsedDocument, drafts: Sequence[DraftChunk]) -> None:
        self.documents += 1
        self.pages += len(parsed.pages)
        self.scanned += len(parsed.scanned_pages)
        self.sizes.update(draft.token_count for draft in drafts)
        tables = {d.place.table_id for d in drafts if d.place.table_id is not None}
        self.tables += len(tables)

    def join(self, other: SourceFigures) -> None:
        self.files += other.files
        self.documents += other.documents
        self.tables += other.tables
        self.pages += other.pages
        self.scanned += other.scanned
        self.sizes.update(other.sizes)

    def figures(self) -> DryRunFigures:
        chunks = self.sizes.total()
        tokens = sum(size * count for size, count in self.sizes.items())
        return DryRunFigures(
            files=self.files,
            documents=self.documents,
            chunks=chunks,
            tokens=tokens,
            tokens_min=min(self.sizes, default=None),
            tokens_avg=round(tokens / chunks, 1) if chunks else None,
            tokens_max=max(self.sizes, default=None),
            histogram=_histogram(self.sizes),
            tables=self.tables,
            pages=self.pages,
            scanned_pages=self.scanned,
        )


def _histogram(sizes: Counter[int]) -> list[HistogramBar]:
    bars, min_tokens = [], 0
    for end in (*BUCKETS, None):
        count = sum(
            n for size, n in sizes.items() if size >= min_tokens and (end is None or size < end)
        )
        bars.append(
            HistogramBar(
                min_tokens=min_tokens, max_tokens=None if end is None else end - 1, chunks=count
            )
        )
        min_tokens = end or 0
    return bars
