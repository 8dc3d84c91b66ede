"""Evaluation: the request, the report, and saved runs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from latent_core.domain.golden import MAX_QUERIES, GoldenSet
from latent_core.domain.manifest.model import Fusion, FusionMethod, SearchMode
from latent_core.wire.base import Envelope, PagedEnvelope
from latent_core.wire.search import MAX_QUERY_CHARS

MAX_JUDGEMENTS: Final = 10_000
"""Of one query."""
MAX_ROUNDS: Final = 10
MAX_RERANKED: Final = 100
"""Queries that an evaluation reranks: the first of the set."""

Name = Annotated[str, Field(min_length=1, max_length=4096)]
Grade = Annotated[float, Field(ge=0.0, le=1000.0, allow_inf_nan=False)]


class JudgedQuery(BaseModel):
    """One query of a judged set, with the documents that answer it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Annotated[str, Field(min_length=1, max_length=256)]
    query: Annotated[str, Field(min_length=1, max_length=MAX_QUERY_CHARS)]
    relevant: Annotated[dict[Name, Grade], Field(min_length=1, max_length=MAX_JUDGEMENTS)]
    """Document id, source uri or external id to its grade; 0 has the same effect as no entry."""


class Setup(BaseModel):
    """One way to search."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: SearchMode
    fusion: Fusion = Fusion()

    @property
    def name(self) -> str:
        """As tables and stored runs call it."""
        if self.mode in (SearchMode.SEMANTIC, SearchMode.LEXICAL):
            return self.mode.value  # one channel: nothing is fused
        how = self.fusion.method.value
        if self.fusion.method is FusionMethod.RRF:
            how += f" k={self.fusion.k}"
        weights = ", ".join(f"{c}={w:g}" for c, w in sorted(self.fusion.weights.items()))
        return f"{self.mode.value}, {how}" + (f", {weights}" if weights else "")


class EvalRequest(BaseModel):
    """Body of ``POST /v1/containers/{id}/eval``: golden queries, or those of a judged set, or neither.

    Without either, the container's own golden queries are used.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    golden: GoldenSet | None = None
    judged: Annotated[list[JudgedQuery], Field(max_length=MAX_QUERIES)] = []
    modes: Annotated[list[SearchMode], Field(max_length=len(SearchMode))] = []
    """Default: the container's own."""
    fusions: Annotated[list[Fusion], Field(max_length=20)] = []
    """Default: the container's own."""
    suggest: bool = False
    """Also try other fusions and weights, and report the best."""
    save: bool = False
    """Store this run as the new baseline even if a gate fails, except when an answer was incomplete."""
    compare: bool = False
    """Compare with the last run and store nothing. Without ``save`` and ``compare``: compare, and store if all gates pass."""
    rounds: Annotated[int, Field(ge=1, le=MAX_ROUNDS)] = 3
    """Runs per query: the first answer is judged and the shortest time counts, which removes noise of the machine.
    While the p95 fails its gate, the queries run again, up to ``MAX_ROUNDS`` times."""

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if self.golden is not None and self.judged:
            raise ValueError("give golden or judged queries, not both")
        if self.save and self.compare:
            raise ValueError("save stores this run, compare stores none: give only one of them")
        return self


class Interval(BaseModel):
    """A figure with the bounds of its 95 % bootstrap interval."""

    value: float
    low: float
    high: float


class Means(BaseModel):
    """Over all queries; a query without a hit counts 0 in each."""

    ndcg_at_10: float
    recall_at_20: float
    recall_at_100: float
    mrr: float
    zero_hit_rate: float
    p50_ms: float
    p95_ms: float


class QueryVerdict(BaseModel):
    """One query and the reasons why it fails."""

    id: str
    query: str
    ndcg_at_10: float
    recall_at_20: float
    hits: int
    reciprocal_rank: float = 0.0
    """1 / the rank of the first right document; of strings, the mean over them. 0: none of the hits is right."""
    failures: list[str] = []


class Comparison(BaseModel):
    """Comparison with another run or setup, query by query."""

    of: str
    ndcg_at_10: Interval
    """The difference; above 0 means better."""


class SetupReport(BaseModel):
    """The result of one search setup."""

    setup: Setup
    name: str
    queries: int
    means: Means
    ndcg: Interval
    partial: int = 0
    """Incomplete answers, because a deadline had passed."""
    gates: list[str] = []
    """The failed gates."""
    compared: Comparison | None = None
    """With the last stored run."""
    verdicts: list[QueryVerdict] = []
    """Of golden queries; of a judged set only the first ones without a hit."""

    @property
    def passed(self) -> bool:
        return not self.gates


class Suggestion(BaseModel):
    """The best fusion that was tried."""

    best: Setup
    name: str
    ndcg_at_10: float
    over_current: Interval
    worth_it: bool
    """Whether the interval of the difference lies above 0; if not, keep the current setup."""
    tried: list[tuple[str, float]] = []
    """Every setup with its nDCG@10, best first."""


class RerankFigures(BaseModel):
    """Of the container's default mode, with or without its reranker."""

    ndcg_at_10: float
    recall_at_20: float
    hit_at_1: float
    p50_ms: float
    p95_ms: float


class RerankReport(BaseModel):
    """What reranking gains and costs in the container. No gate depends on it."""

    summary: str
    """The difference in one line, or why it was not measured."""
    missing: str = ""
    """Why there is no reranker, and how to get one. All other fields then have their defaults."""
    setup: str = ""
    """The container's default mode and fusion."""
    queries: int = 0
    """The first ``MAX_RERANKED`` of the set."""
    without: RerankFigures | None = None
    reranked: RerankFigures | None = None
    gain: Interval | None = None
    """The difference of nDCG@10, query by query; above 0 means that reranking is better."""
    partial: int = 0
    """Answers that were reranked in part or not at all, for example because the deadline had passed. They count in the
    figures as a searcher gets them."""
    cause: str = ""
    """Of the first of these."""


class EvalReport(BaseModel):
    """The result of an evaluation job."""

    container_id: str
    dataset: str
    """Hash of the queries and their expected answers."""
    passed: bool
    setups: list[SetupReport]
    suggestion: Suggestion | None = None
    reranking: RerankReport | None = None
    kept: bool = False
    """Whether the next run is compared with this one."""


class KeptRun(BaseModel):
    """A run as stored for later comparisons."""

    model_config = ConfigDict(extra="ignore")

    setup: str
    dataset: str
    means: Means
    ndcg_by_query: dict[str, float] = {}
    created_at: str = ""
    process: Annotated[str, Field(exclude=True)] = ""
    """The kind of process that measured it (``Stack.process``): latencies compare only within one kind. Not sent."""


class EvalRuns(PagedEnvelope):
    runs: list[KeptRun]


class EvalRun(BaseModel):
    """A stored run of one setup."""

    id: int
    setup: str
    dataset: str
    """Hash of the queries and their expected answers: runs with the same one measured the same."""
    golden: bool = True
    """False: of a judged set."""
    passed: bool
    baseline: bool
    """Whether later runs of the same queries and setup are compared with it."""
    means: Means
    queries: int
    partial: int = 0
    """Incomplete answers."""
    gates: list[str] = []
    """The failed gates."""
    embedder: str | None = None
    """Of the vectors that were searched; None if they no longer exist."""
    job_id: int | None = None
    principal: str
    created_at: datetime


class EvalHistory(PagedEnvelope):
    runs: list[EvalRun]


class EvalRunAnswer(Envelope):
    run: EvalRun
    verdicts: list[QueryVerdict] | None
    """Of every query; None for a run that is older than ``MAX_DETAILED`` others of its setup."""


class QueryChange(BaseModel):
    """One query in two runs."""

    id: str
    query: str
    before: QueryVerdict
    after: QueryVerdict
    change: float
    """Of nDCG@10; above 0 means better."""


class RunDifference(Envelope):
    """Two runs, query by query. Queries are the same if id and text are."""

    before: EvalRun
    after: EvalRun
    ndcg_at_10: Interval | None
    """The mean difference over the queries of both runs; above 0 means better. None without such a query."""
    better: int
    worse: int
    same: int
    only_before: int
    """Queries of the first run that the second did not measure."""
    only_after: int
    changes: list[QueryChange]
    """The queries whose nDCG@10, rank or verdict differs, the largest change first."""
