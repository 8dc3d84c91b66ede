"""A search request to one or several containers, and its diagnostics."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from latent_core.domain.envelope import Envelope
from latent_core.domain.hit import Hit
from latent_core.domain.manifest.model import Fusion, SearchMode
from latent_core.domain.text import Text

MAX_QUERY_CHARS = 8192
MAX_CONTAINERS = 50
MAX_TOP_K = 100
MAX_PATTERNS = 32
MAX_PATTERN_CHARS = 1000

MAX_NEIGHBOURS = 5
MIN_CHARS = 200

Detail = Literal["brief", "full"]
Pattern = Annotated[Text, Field(min_length=1, max_length=MAX_PATTERN_CHARS)]


class SearchRequest(BaseModel):
    """Body of ``POST /v1/containers/search``."""

    model_config = ConfigDict(extra="forbid")

    containers: Annotated[list[Text], Field(min_length=1, max_length=MAX_CONTAINERS)]
    query: Annotated[str, Field(max_length=MAX_QUERY_CHARS)] = ""
    image_ref: Text | None = None
    """An image to search by, alone or with a query: the id of an upload to one of the containers, of a document, or
    ``page://<doc_id>/<page>``. Its text (read by OCR) becomes part of the query."""
    top_k: Annotated[int, Field(ge=1, le=MAX_TOP_K)]
    mode: SearchMode | None = None
    """Default: each container's ``retrieval.mode_default``; crossmodal for an image without a query."""
    fusion: Fusion | None = None
    """How the channels are fused; default: each container's ``retrieval.fusion``."""
    filters: dict[str, Any] = {}
    must_terms: Annotated[list[Pattern], Field(max_length=MAX_PATTERNS)] = []
    """Exact substrings that every hit contains."""
    regexes: Annotated[list[Pattern], Field(max_length=MAX_PATTERNS)] = []
    """RE2 expressions; every hit matches at least one."""
    path_like: Pattern | None = None
    """A glob (``*``, ``?``) or substring that every hit's source path matches; case is ignored."""
    ignore_case: bool = False
    """For ``must_terms`` and ``regexes``."""
    rerank_k: Annotated[int, Field(ge=1, le=1000)] = 50
    dedup: bool = True
    """One hit per document; the others are listed under it."""
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


class SearchResponse(Envelope):
    hits: list[Hit] = []
    next_cursor: str | None = None
    """Cursor of the next page; None on the last one."""
    truncated: bool = False
    """``max_chars`` shortened the answer."""
    exhausted: list[str] = []
    """Containers without candidates beyond those already examined."""
    diagnostics: Diagnostics | None = None
