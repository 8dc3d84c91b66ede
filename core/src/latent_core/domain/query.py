"""A question to one or several containers, and how its answer came about."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from latent_core.domain.envelope import Envelope
from latent_core.domain.errors import Issue, IssueCode
from latent_core.domain.hit import Hit
from latent_core.domain.manifest import SearchMode
from latent_core.domain.text import Text

MAX_QUERY_CHARS = 8192
MAX_CONTAINERS = 50
MAX_TOP_K = 100


class SearchRequest(BaseModel):
    """Body of ``POST /v1/containers/search``."""

    model_config = ConfigDict(extra="forbid")

    containers: Annotated[list[Text], Field(min_length=1, max_length=MAX_CONTAINERS)]
    query: Annotated[str, Field(max_length=MAX_QUERY_CHARS)] = ""
    image_ref: Text | None = None
    top_k: Annotated[int, Field(ge=1, le=MAX_TOP_K)]
    mode: SearchMode | None = None
    """Default: each container's ``retrieval.mode_default``."""
    filters: dict[str, Any] = {}
    rerank_k: Annotated[int, Field(ge=1, le=1000)] = 50
    dedup: bool = True
    """One hit per document; the others are listed under it."""
    diagnostics: bool | None = None
    """Default: as the manifests' ``debug.return_diagnostics`` say."""

    def without_effect(self) -> list[Issue]:
        """What was asked for by name and changes nothing yet: the answer says so."""
        if "rerank_k" not in self.model_fields_set:
            return []
        told = "rerank_k has no effect: rerank is not offered yet"
        return [Issue(code=IssueCode.POLICY, message=told, details={"rerank_k": self.rerank_k})]


class StageScore(BaseModel):
    """One candidate of one channel."""

    container_id: str
    doc_id: UUID
    ord: int
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
    container_status: list[ContainerStatus] = []
    terms: dict[str, list[str]] = {}
    """Container to the lexemes the query became."""


class SearchResponse(Envelope):
    hits: list[Hit] = []
    exhausted: list[str] = []
    """Containers that hold no further candidates than those that were looked at."""
    diagnostics: Diagnostics | None = None
