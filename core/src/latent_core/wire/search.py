"""Search: the request, the hits, and the diagnostics."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from latent_core.domain.chunk import SourceType
from latent_core.domain.generated import GeneratedBy
from latent_core.domain.origin import Origin
from latent_core.domain.retrieval import Fusion, SearchMode
from latent_core.domain.text import Text
from latent_core.domain.visual_importance import Importance, ImportanceBy, ReadAs
from latent_core.wire.base import Envelope


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
    """Where the snippet stands: of a chunk on several pages, the one with the best match."""
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
    page: int | None = None
    """Page of the source with the first match."""


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
    """A matching chunk of another document with nearly the same text as the hit; of another container only with the
    same text."""

    container_id: str
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
    relevance: float | None = None
    """0..1, comparable between queries and containers; above 0.5 the hit is rather relevant. None if it cannot be
    measured, such as for a query by an image alone."""
    weak: bool = False
    """Its relevance is below 0.5; only with ``mark_weak``."""
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
    """Image of page ``provenance.page``, presigned; the same as ``page_uri``."""
    page_uri: str | None = None
    page_uris: list[str] = Field(default_factory=list)
    """All pages of the chunk that have an image, in order."""
    page_image: Literal["ready", "pending", "failed", "none"] = "none"
    """``pending``: a job still draws it."""
    page_image_cause: str | None = None
    """Why it is missing, if drawing failed."""
    page_pdf_uri: str | None = None
    """The page as a single-page PDF, presigned; only if it was made before (``/v1/documents/{doc}/pages/{n}/pdf``)."""
    next_page_pdf_uri: str | None = None
    """The page after it as a PDF, presigned, if a language model read it to describe the page."""
    read_as: ReadAs = "text"
    """``image``: ``page_pdf_uri`` and ``page_uri`` show more than the text; so from importance 4."""
    visual_importance: Importance | None = None
    """1 (the text says everything) to 5 (only the picture does); None while it is not known."""
    visual_importance_by: ImportanceBy | None = None
    """A language model's judgement, or the measured share of pictures that stands in for it."""
    visual_share: float | None = None
    """0..1: the measured share of the page that is picture."""
    cite_as: str | None = None
    """The page to cite, such as ``p. 7``: ``provenance.page``."""
    offsets: tuple[int, int]
    """Characters in the source text."""
    place: PlaceView
    source_path: str
    source_uri: str
    why: list[Reason] = Field(default_factory=list)
    timestamps: list[float] = Field(default_factory=list)
    """Begin and end in a recording, in seconds; empty for all that has no time of its own, as ``offsets`` are for texts.
    When the source was modified, fetched and indexed: ``modified_at``, ``fetched_at``, ``indexed_at``."""
    origin: Origin = Origin.FILE
    written_by: str | None = None
    """The principal that added the document; None if it was not recorded."""
    written_at: datetime | None = None
    superseded_by: UUID | None = None
    """The newer document that replaces this one."""
    superseded_at: datetime | None = None
    modified_at: datetime | None = None
    fetched_at: datetime | None = None
    indexed_at: datetime | None = None
    provenance: Provenance
    generated: GeneratedBy | None = None
    """Of a text that a model wrote about the document: what it is, the model, the version of its prompt, and when."""
    meta: dict[str, Any] = Field(default_factory=dict)
    also_in_document: list[AlsoInDocument] = Field(default_factory=list)
    duplicates: list[Duplicate] = Field(default_factory=list)
    before: list[Neighbour] = Field(default_factory=list)
    """In the order of the document, as many as requested."""
    after: list[Neighbour] = Field(default_factory=list)


MAX_QUERY_CHARS = 8192
MAX_CONTAINERS = 1000
MAX_TOP_K = 100
DEFAULT_RERANK_K = 50
MAX_PATTERNS = 32
MAX_PATTERN_CHARS = 1000

MAX_FACETS = 8
MAX_FACET_VALUES = 50
MAX_NEIGHBOURS = 5
MAX_PASSAGES = 5
MIN_CHARS = 200

Detail = Literal["brief", "full"]
Pattern = Annotated[Text, Field(min_length=1, max_length=MAX_PATTERN_CHARS)]


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


SourceTypes = Annotated[
    list[SourceType], BeforeValidator(_listed), Field(max_length=len(SourceType))
]
"""Some source types; one may stand without a list."""


class LikeReference(BaseModel):
    """A document, or one of its chunks, that results resemble."""

    model_config = ConfigDict(extra="forbid")

    doc_id: UUID | None = None
    chunk_id: UUID | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.doc_id is None) == (self.chunk_id is None):
            raise ValueError("give either doc_id or chunk_id")
        return self


class SearchRequest(BaseModel):
    """Body of ``POST /v1/containers/search``."""

    model_config = ConfigDict(extra="forbid")

    containers: Annotated[list[Text], Field(min_length=1, max_length=MAX_CONTAINERS)] | None = None
    """Default: all that the token may read. Only the first ``LLC_SEARCH_MAX_CONTAINERS`` are searched, and archived ones
    are skipped; an issue says so."""
    query: Annotated[str, Field(max_length=MAX_QUERY_CHARS)] = ""
    image_ref: Text | None = None
    """An image to search by, alone or with a query: the id of an upload to one of the containers, of a document, or
    ``page://<doc_id>/<page>``. Its text (read by OCR) becomes part of the query."""
    as_you_type: bool = False
    """The query is still being typed: its last word also matches words that begin with it."""
    like: LikeReference | None = None
    """Find texts like this one, alone or with a query; the document and its copies are no results."""
    top_k: Annotated[int, Field(ge=1, le=MAX_TOP_K)]
    """Limit of documents in the answer; of chunks without dedup."""
    mode: SearchMode | None = SearchMode.HYBRID
    """Default: each container's ``retrieval.mode_default``, which is hybrid unless its manifest names another mode;
    crossmodal for an image without a query."""
    fusion: Fusion | None = None
    """How the channels are fused; default: each container's ``retrieval.fusion``."""
    filters: dict[str, Any] = {}
    source_type: SourceTypes = []
    """Only these; the same as the filter of that name."""
    must_terms: Annotated[list[Pattern], Field(max_length=MAX_PATTERNS)] = []
    """Exact substrings that every hit contains."""
    regexes: Annotated[list[Pattern], Field(max_length=MAX_PATTERNS)] = []
    """RE2 expressions; every hit matches at least one."""
    path_like: Pattern | None = None
    """A glob (``*``, ``?``) or substring that every hit's source path matches; case is ignored."""
    ignore_case: bool = False
    """For ``must_terms`` and ``regexes``."""
    facets: Annotated[list[Pattern], Field(max_length=MAX_FACETS)] = []
    """Fields to count over all matching documents: container, source_type, language, origin, written_by, session,
    max_age (1d, 7d, 30d, 365d), summary.product_tags, summary.key_topics, meta.<name>."""
    rerank_k: Annotated[int, Field(ge=1, le=1000)] = DEFAULT_RERANK_K
    dedup: bool = True
    """``passages`` hits per document; the others are listed under the best one."""
    include_superseded: bool = False
    """Also find documents that a newer one replaces."""
    generated: bool = True
    """Also find what a model wrote about the documents; false: only what they say themselves."""
    passages: Annotated[int, Field(ge=1, le=MAX_PASSAGES)] = 1
    """Limit of hits per document, with dedup. Beyond the best one only chunks that are among the ``top_k`` best of all;
    they follow it in the order of the document."""
    min_score: Annotated[float, Field(ge=0, le=1)] | None = None
    """The lowest ``relevance`` of a hit; others are not returned, and an issue counts them."""
    mark_weak: bool | None = None
    """Mark hits whose relevance is below 0.5; default: each container's ``retrieval.mark_weak``."""
    neighbours: Annotated[int, Field(ge=0, le=MAX_NEIGHBOURS)] = 0
    """Chunks of the document before and after each hit that are shown with it."""
    detail: Detail = "full"
    """brief: snippets without the chunks' texts."""
    max_chars: Annotated[int | None, Field(ge=MIN_CHARS)] = None
    """Of the texts of all hits together."""
    cursor: Annotated[str | None, Field(max_length=128)] = None
    """``next_cursor`` of the page before, with the same request."""
    explain: bool = False
    """Diagnostics, with the plan in words."""
    diagnostics: bool | None = None
    """Default: ``debug.return_diagnostics`` of the manifests."""

    @property
    def requested_mode(self) -> SearchMode | None:
        """None unless the request names it."""
        return self.mode if "mode" in self.model_fields_set else None

    @property
    def all_filters(self) -> dict[str, Any]:
        """``filters`` and ``source_type``."""
        if not self.source_type:
            return self.filters
        only = {"source_type": [source_type.value for source_type in self.source_type]}
        if "source_type" in self.filters:
            return {"and": [self.filters, only]}
        return {**self.filters, **only}

    @property
    def requested_rerank_k(self) -> int | None:
        """None unless the request names it."""
        return self.rerank_k if "rerank_k" in self.model_fields_set else None


class StageScore(BaseModel):
    """One candidate of one channel."""

    container_id: str
    doc_id: UUID
    chunk_no: int
    """The chunk's number in its container."""
    rank: int
    """From 1."""
    score: float


class ContainerStatus(BaseModel):
    """The outcome of one search in one container."""

    container_id: str
    ok: bool
    candidates: int = 0
    stale: int = 0
    """Candidates that the join on the live generation removed."""
    exhausted: bool = False
    """No further live candidates exist, also if the channels return more."""
    list_lengths: dict[str, int] = {}
    """Live candidates of each channel: the rank of a reason is one of so many."""
    rounds: int = 1
    timings_ms: dict[str, float] = {}
    issue: str | None = None


class Diagnostics(BaseModel):
    """Diagnostics of an answer; present on request."""

    stage_scores: dict[str, list[StageScore]] = {}
    timings_ms: dict[str, float] = {}
    candidates_before_rerank: int = 0
    candidates_after_rerank: int = 0
    applied_filters: dict[str, Any] = {}
    freshness_factor: float | None = None
    """Of the first hit, if its container uses freshness."""
    plan: list[str] = []
    """The steps of the search in words; on request (``explain``)."""
    container_status: list[ContainerStatus] = []
    terms: dict[str, list[str]] = {}
    """Maps each container to the lexemes of the query."""
    influence: dict[str, dict[str, float]] = {}
    """Maps each container that is fused by ``auto`` to how far each channel moves candidates, as shares of 1."""


class FacetValue(BaseModel):
    value: str | int | float | bool
    count: int
    """Documents with it."""


class Facet(BaseModel):
    """How the matching documents are distributed over the values of a field."""

    documents: int
    """Documents that match."""
    values: list[FacetValue]
    """The most frequent ones first, at most ``MAX_FACET_VALUES``. A document with a list counts once for each item."""
    other_count: int
    """Sum of the counts of the values that are not listed: rarer ones, objects, and texts over 512 bytes."""
    other_values: int
    """Number of these values."""
    missing: int
    """Documents without a value."""


class SearchResponse(Envelope):
    hits: list[Hit] = []
    facets: dict[str, Facet] = {}
    """By field, as requested."""
    next_cursor: str | None = None
    """Cursor of the next page; None on the last one."""
    truncated: bool = False
    """``max_chars`` shortened the answer."""
    exhausted: list[str] = []
    """Containers without candidates beyond those already examined."""
    diagnostics: Diagnostics | None = None
