"""Refresh: the request, its plan, its gates and its report; and the states of spaces."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from latent_core.domain.golden import GoldenSet
from latent_core.domain.ids import WireJobId
from latent_core.domain.text import Text
from latent_core.wire.base import ContainerId, Envelope, RequestBody


class SpaceState(StrEnum):
    BUILDING = "building"
    """In build: receives new documents too, but no search reads it."""
    LIVE = "live"
    RETIRED = "retired"
    """Was live; kept and updated, so that one step can roll back."""
    DROPPING = "dropping"


class Strategy(StrEnum):
    PARALLEL = "parallel"
    """Build a new space from stored text, and switch when it is complete and passes the gates."""
    INPLACE = "inplace"
    """Re-embed the live space, document by document."""
    DRIFT = "drift"
    """No full re-embed: an adapter, trained on a sample, maps between the two models."""
    REPARSE = "reparse"
    """Ingest the stored originals again, after a change of the parsers or the chunker's settings."""


class Way(StrEnum):
    """What a drift adapter maps."""

    QUERY = "query"
    """Queries of the new model into the stored space: immediate, without rewriting vectors."""
    FORWARD = "forward"
    """Stored vectors into the new model's space; embedded vectors replace them step by step."""


class RefreshTarget(BaseModel):
    """The new embedder of a container, with the keys of a manifest."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    embedder: Annotated[Text, Field(min_length=1, max_length=512)]
    version: Annotated[Text, Field(min_length=1, max_length=128)] | None = None
    dims: Annotated[int, Field(ge=1, le=65_536)] | None = None


class RefreshRequest(BaseModel):
    """A refresh request; invalid combinations are refused with the reason."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    strategy: Strategy = Strategy.PARALLEL
    to: RefreshTarget | None = None
    """None: the container's current embedder."""
    way: Way | None = None
    """Of strategy drift; default ``query``."""
    force: bool = False
    """Switch even if a gate fails; an inplace refresh begins with an empty collection."""
    keep_days: Annotated[float, Field(ge=0, le=3650)] | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.strategy is Strategy.DRIFT and self.to is None:
            raise ValueError("strategy drift needs 'to': the embedder to change to")
        if self.strategy is Strategy.REPARSE and self.to is not None:
            raise ValueError("strategy reparse keeps the embedder: remove 'to'")
        if self.way is not None and self.strategy is not Strategy.DRIFT:
            raise ValueError("'way' applies only to strategy drift")
        if self.keep_days is not None and self.strategy in (Strategy.INPLACE, Strategy.REPARSE):
            raise ValueError(
                f"strategy {self.strategy.value} keeps no old space: 'keep_days' applies to parallel and drift"
            )
        if self.force and self.strategy is Strategy.REPARSE:
            raise ValueError("strategy reparse has no gates and deletes no vectors: remove 'force'")
        return self


class RefreshPayload(BaseModel):
    """Payload of a refresh job; updated during the job, so that a retry continues."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    strategy: Strategy
    space_id: int
    """The space to build or re-embed."""
    to: RefreshTarget | None = None
    way: Way | None = None
    force: bool = False
    keep_days: float = 7.0
    golden: GoldenSet | None = None
    mapped_only: bool = False
    """Re-embed the documents with only mapped vectors."""
    moves: bool = False
    """Copy the vectors of the live space from a shared collection into one of its own."""
    collection_cleared: bool = False
    """The collection was already emptied for ``force``."""
    after: str | None = None
    """The last document of a reparse that was enqueued."""
    done: int = 0

    def stored(self) -> dict[str, Any]:
        """As a job's payload."""
        return self.model_dump(mode="json", by_alias=True)


class ModelView(BaseModel):
    """Display name of an embedder."""

    embedder: str
    version: str
    dims: int


class RefreshPlan(BaseModel):
    """The plan and cost of a refresh."""

    strategy: Strategy
    source: ModelView
    target: ModelView
    documents: int
    chunks: int
    texts: int
    """Texts to send to the embedder, without those in the cache."""
    tokens: int
    """Of these texts; counted by the tokenizer that made the chunks."""
    cached: int
    """Chunks with cached vectors."""
    cost: float | None
    """Cost of the tokens by LLC_EMBED_PRICE_PER_MILLION; None if that is not set. A local embedder costs 0."""
    seconds: float | None
    """Duration of embedding; None if the embedder's speed is not known."""
    basis: str
    """Source of the rate."""
    golden_queries: int
    notes: list[str] = []


class SpaceFigures(BaseModel):
    """Results of the golden queries in one space."""

    ndcg_at_10: float
    recall_at_20: float
    p50_ms: float
    p95_ms: float


class GateReport(BaseModel):
    """Results of both spaces on the golden queries, and the reasons against the switch."""

    queries: int
    old: SpaceFigures | None
    """None when the old embedder is not available."""
    new: SpaceFigures
    failures: list[str]

    @property
    def passed(self) -> bool:
        return not self.failures

    def words(self) -> str:
        summary = f"{self.queries} golden queries: nDCG@10 {self.new.ndcg_at_10:.3f}, p95 {self.new.p95_ms:.1f} ms"
        if self.old is not None:
            summary += f" (before: {self.old.ndcg_at_10:.3f}, {self.old.p95_ms:.1f} ms)"
        return summary


class DriftReport(BaseModel):
    """Measurements of an adapter, each relative to a full re-embed of the sample."""

    way: Way
    pairs: int
    """Texts and questions from them, embedded by both models."""
    candidates: int
    """Ranked chunks."""
    queries: int
    """Held back from the training."""
    recall: float
    """recall@10 with the adapter."""
    status_quo: float | None
    """recall@10 of the old model without adapter; None when it is not available."""
    needed: float
    train_seconds: float

    def words(self) -> str:
        quo = "unknown" if self.status_quo is None else f"{self.status_quo:.3f}"
        return (
            f"recall@10 {self.recall:.3f} of a full re-embed ({self.needed:.2f} needed), keeping the old model"
            f" {quo}; {self.pairs} pairs, {self.queries} held-back queries over {self.candidates} chunks"
        )

    @property
    def accepted(self) -> bool:
        better = self.status_quo is None or self.recall > self.status_quo
        return self.recall >= self.needed and better

    def details(self) -> dict[str, Any]:
        return self.model_dump(mode="json")


class RefreshBody(RefreshRequest):
    model_config = ConfigDict(extra="forbid", frozen=True)

    container_id: ContainerId
    dry_run: bool = False

    def request(self) -> RefreshRequest:
        return RefreshRequest.model_validate(
            self.model_dump(exclude={"container_id", "dry_run"}, exclude_none=True)
        )


class RefreshAnswer(Envelope):
    job_id: WireJobId
    status: Literal["queued"] = "queued"
    space_id: int
    """The embedding space that the job builds or rewrites."""


class PlanAnswer(Envelope):
    """Of a dry run."""

    status: Literal["planned"] = "planned"
    plan: RefreshPlan


class RollbackBody(RequestBody):
    container_id: ContainerId


class RollbackAnswer(Envelope):
    """The result of a rollback."""

    aborted: ModelView | None
    """A build that never became live."""
    was: ModelView | None
    now: ModelView
