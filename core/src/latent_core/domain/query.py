"""A question to one or several containers, and how its answer came about."""

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
    """An image to ask by, alone or with a query: the id of an upload to one of the containers, of a document, or
    ``page://<doc_id>/<page>``. What it says (read by OCR) is asked for."""
    top_k: Annotated[int, Field(ge=1, le=MAX_TOP_K)]
    mode: SearchMode | None = None
    """Default: each container's ``retrieval.mode_default``; crossmodal for an image without a query."""
    fusion: Fusion | None = None
    """How the channels are fused; default as each container's ``retrieval.fusion`` says."""
    filters: dict[str, Any] = {}
    must_terms: Annotated[list[Pattern], Field(max_length=MAX_PATTERNS)] = []
    """Substrings that every hit holds as they are written."""
    regexes: Annotated[list[Pattern], Field(max_length=MAX_PATTERNS)] = []
    """RE2 expressions of which every hit matches one."""
    path_like: Pattern | None = None
    """A glob (``*``, ``?``) or a part of the path that every hit's source has; in any case."""
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
    """``next_cursor`` of the page before, with the same question."""
    explain: bool = False
    """Diagnostics, with the plan in words."""
    diagnostics: bool | None = None
    """Default: as the manifests' ``debug.return_diagnostics`` say."""

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
    """What became of one container in one search."""

    container_id: str
    ok: bool
    candidates: int = 0
    stale: int = 0
    """Candidates the join on the live generation refused."""
    exhausted: bool = False
    """No further live candidates exist, however far the channels are widened."""
    rounds: int = 1
    timings_ms: dict[str, float] = {}
    issue: str | None = None


class Diagnostics(BaseModel):
    """How an answer came about; present when asked for."""

    stage_scores: dict[str, list[StageScore]] = {}
    timings_ms: dict[str, float] = {}
    candidates_before_rerank: int = 0
    candidates_after_rerank: int = 0
    applied_filters: dict[str, Any] = {}
    freshness_factor: float | None = None
    """Of the first hit, where its container counts freshness."""
    plan: list[str] = []
    """What was done, in words; when asked to explain."""
    container_status: list[ContainerStatus] = []
    terms: dict[str, list[str]] = {}
    """Container to the lexemes the query became."""


class SearchResponse(Envelope):
    hits: list[Hit] = []
    next_cursor: str | None = None
    """Where the next page begins; None when there is none."""
    truncated: bool = False
    """``max_chars`` kept something out."""
    exhausted: list[str] = []
    """Containers that hold no further candidates than those that were looked at."""
    diagnostics: Diagnostics | None = None
