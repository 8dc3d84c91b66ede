"""Changing the embedding space of a container: what is asked for, what it would cost, what was measured."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from latent_core.domain.golden import GoldenSet
from latent_core.domain.text import Text


class SpaceState(StrEnum):
    BUILDING = "building"
    """Takes what comes in beside the live one; nothing is searched in it."""
    LIVE = "live"
    RETIRED = "retired"
    """Was live; kept, and kept up to date, so that one step leads back."""
    DROPPING = "dropping"


class Strategy(StrEnum):
    PARALLEL = "parallel"
    """A new space beside the live one, from stored text; switched to when it is complete and no worse."""
    INPLACE = "inplace"
    """The same space, document by document."""
    DRIFT = "drift"
    """No full re-embed: an adapter that was trained on a sample stands between the two models."""
    REPARSE = "reparse"
    """From the stored originals: the parsers or the chunker's settings have changed."""


class Way(StrEnum):
    """What a drift adapter maps."""

    QUERY = "query"
    """Queries of the new model into the stored space: at once, and nothing is rewritten."""
    FORWARD = "forward"
    """Stored vectors into the new model's space; really embedded ones replace them by and by."""


class RefreshTarget(BaseModel):
    """The embedder that a container is to have, in the words of a manifest."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    embedder: Annotated[Text, Field(min_length=1, max_length=512)]
    version: Annotated[Text, Field(min_length=1, max_length=128)] | None = None
    dims: Annotated[int, Field(ge=1, le=65_536)] | None = None


class RefreshRequest(BaseModel):
    """What a person asks for; ``Invalid`` combinations are refused with the reason."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    strategy: Strategy
    to: RefreshTarget | None = None
    """None: the embedder that the container has."""
    way: Way | None = None
    """Of strategy drift; default ``query``."""
    force: bool = False
    """Switch though a gate fails; begin an inplace refresh with an empty collection."""
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
    """What a refresh job carries; amended as it goes on, so that the next attempt need not begin anew."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    strategy: Strategy
    space_id: int
    """The space that is built, or re-embedded."""
    to: RefreshTarget | None = None
    way: Way | None = None
    force: bool = False
    keep_days: float = 7.0
    golden: GoldenSet | None = None
    mapped_only: bool = False
    """Re-embed what is only mapped so far."""
    collection_cleared: bool = False
    """The collection was emptied already, as ``force`` asked."""
    after: str | None = None
    """The last document of a reparse that was enqueued."""
    done: int = 0

    def stored(self) -> dict[str, Any]:
        """As a job's payload."""
        return self.model_dump(mode="json", by_alias=True)


class ModelView(BaseModel):
    """An embedder, as people compare them."""

    embedder: str
    version: str
    dims: int


class RefreshPlan(BaseModel):
    """What a refresh would do and cost."""

    strategy: Strategy
    source: ModelView
    target: ModelView
    documents: int
    chunks: int
    texts: int
    """That the embedder would be sent, those that it read before left out."""
    tokens: int
    """Of these texts; counted by the tokenizer that made the chunks."""
    cached: int
    """Chunks whose vectors are kept from before."""
    cost: float | None
    """Of the tokens, by LLC_EMBED_PRICE_PER_MILLION; None where that is not set. A local embedder costs nothing."""
    seconds: float | None
    """Of embedding; None where nothing tells how fast the embedder is."""
    basis: str
    """Where the rate comes from."""
    golden_queries: int
    notes: list[str] = []


class SpaceFigures(BaseModel):
    """How the golden queries did in one space."""

    ndcg_at_10: float
    recall_at_20: float
    p50_ms: float
    p95_ms: float


class GateReport(BaseModel):
    """Both spaces by the golden queries, and what speaks against the switch."""

    queries: int
    old: SpaceFigures | None
    """None when the old embedder is not to be had."""
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
    """What an adapter was measured at, each against a full re-embed of the sample."""

    way: Way
    pairs: int
    """Texts, and questions made of them, embedded by both models."""
    candidates: int
    """Chunks that were ranked."""
    queries: int
    """Held back from the training."""
    recall: float
    """recall@10 with the adapter."""
    status_quo: float | None
    """recall@10 of the old model as it is; None when it is not to be had."""
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
