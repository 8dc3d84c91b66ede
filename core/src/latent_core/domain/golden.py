"""Golden queries: what a container must answer, and the figures and gates by which it is judged (CONTRACT).

Long form: ``{queries: [{id, query, expect_docs, expect_keywords, min_score}], thresholds}``; short form:
``{queries: [{q, expect}]}``. A query that names documents is measured on their ranks. One that names
strings only is measured as one question a string, whose single answer is the first hit that holds it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Protocol, Self
from uuid import UUID

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from latent_core.domain.errors import Invalid
from latent_core.domain.hit import Hit

GAIN_DEPTH: Final = 10
"""Ranks that count for nDCG, and in which keywords and expected strings must appear."""
RECALL_DEPTH: Final = 20
MIN_RECALL: Final = 0.5
MAX_NDCG_FALL: Final = 0.02
"""Share of the last run's nDCG@10 that may be lost."""
MAX_P95_RISE: Final = 0.20
NOTICEABLE_MS: Final = 5.0
"""A smaller rise of the p95 says nothing, whatever its share."""
MAX_QUERIES: Final = 10_000

Texts = list[Annotated[str, Field(min_length=1)]]


class Judged(Protocol):
    """What figures look at in a hit."""

    @property
    def doc_id(self) -> UUID: ...

    @property
    def source_uri(self) -> str: ...

    @property
    def external_id(self) -> str | None: ...

    @property
    def title(self) -> str: ...

    @property
    def text(self) -> str | None: ...

    @property
    def snippet(self) -> str: ...


class GoldenQuery(BaseModel):
    """One question with what its answer must hold."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = ""
    query: Annotated[str, Field(min_length=1, validation_alias=AliasChoices("query", "q"))]
    expect_docs: Texts = []
    """Document ids, source uris or external ids."""
    expect_keywords: Texts = []
    """Each must appear in the texts of the first ten hits."""
    expect: Texts = []
    """Each must appear in title or text of the first ten hits."""
    min_score: Annotated[float | None, Field(ge=0.0, le=1.0)] = None
    """Least nDCG@10 of this query."""

    @model_validator(mode="after")
    def _expects_something(self) -> Self:
        if not (self.expect_docs or self.expect_keywords or self.expect):
            raise ValueError("expects nothing: give expect_docs, expect_keywords or expect")
        return self


class Thresholds(BaseModel):
    """Least means over all queries, and the largest p95 in milliseconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ndcg_at_10: Annotated[float | None, Field(alias="ndcg@10", ge=0.0, le=1.0)] = None
    recall_at_20: Annotated[float | None, Field(alias="recall@20", ge=0.0, le=1.0)] = None
    p95_latency_ms: Annotated[float | None, Field(gt=0.0)] = None

    def filled(self, defaults: Mapping[Any, float]) -> Thresholds:
        """With those of a manifest, wherever it names none itself."""
        own = self.model_dump(by_alias=True, exclude_none=True)
        return Thresholds.model_validate({**defaults, **own})


class GoldenSet(BaseModel):
    """Queries of one container, in either form, and the thresholds of their means."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    queries: Annotated[list[GoldenQuery], Field(max_length=MAX_QUERIES)]
    thresholds: Thresholds = Thresholds()

    @field_validator("queries")
    @classmethod
    def _named_apart(cls, queries: list[GoldenQuery]) -> list[GoldenQuery]:
        if not queries:
            raise ValueError("the list is empty; add at least one query")
        named = [
            query if query.id else query.model_copy(update={"id": f"q{number}"})
            for number, query in enumerate(queries, start=1)
        ]
        counts = Counter(query.id for query in named)
        twice = [name for name, count in counts.items() if count > 1]
        if twice:
            raise ValueError(f"ids stand twice: {', '.join(twice)}")
        return named


def parse_golden(data: Any, *, where: str = "golden queries") -> GoldenSet:
    """Validate either form; ``Invalid`` names where, the key and what is wrong with it."""
    try:
        return GoldenSet.model_validate(data)
    except ValidationError as exc:
        problems = [_problem(error, where) for error in exc.errors()]
        raise Invalid("; ".join(problems[:5]), problems=problems) from exc


def _problem(error: Any, where: str) -> str:
    key = ".".join(str(part) for part in error["loc"])
    return f"{where}: {key + ': ' if key else ''}{str(error['msg']).removeprefix('Value error, ')}"


@dataclass(frozen=True, slots=True)
class Figures:
    """How one query, or the mean of many, did. Both in 0..1."""

    ndcg: float
    """At 10."""
    recall: float
    """At 20."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One query's figures and the reasons for which it fails."""

    id: str
    query: str
    figures: Figures
    hits: int
    failures: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.failures


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles of the time to an answer, in milliseconds."""

    p50_ms: float
    p95_ms: float


@dataclass(frozen=True, slots=True)
class Report:
    """A whole run: passed when no query and no gate over all of them fails."""

    verdicts: tuple[Verdict, ...]
    mean: Figures
    latency: Latency
    gates: tuple[str, ...]
    """Thresholds that are not met."""

    @property
    def passed(self) -> bool:
        return not self.gates and all(verdict.passed for verdict in self.verdicts)


def judge(query: GoldenQuery, hits: Sequence[Hit]) -> Verdict:
    """Measure ``hits`` (best first, RECALL_DEPTH of them asked for) and apply the query's own rules."""
    figures = measure(query, hits)
    return Verdict(
        query.id, query.query, figures, len(hits), tuple(_failures(query, hits, figures))
    )


def measure(query: GoldenQuery, hits: Sequence[Judged]) -> Figures:
    """nDCG@10 and recall@20; without a hit both are 0."""
    if query.expect_docs:
        return by_documents(query.expect_docs, hits)
    return by_strings(query.expect or query.expect_keywords, hits)


def by_documents(expected: Sequence[str], hits: Sequence[Judged]) -> Figures:
    """Binary relevance of documents: each counts once, where it is first met."""
    wanted = set(expected)
    ranks: list[int] = []
    documents: set[object] = set()
    for hit in hits:
        if hit.doc_id in documents:
            continue
        documents.add(hit.doc_id)
        names = {str(hit.doc_id), hit.source_uri, hit.external_id} & wanted
        if names:
            wanted -= names
            ranks.append(len(documents))
    return Figures(
        ndcg=_dcg(ranks) / _dcg(range(1, len(set(expected)) + 1)),
        recall=sum(rank <= RECALL_DEPTH for rank in ranks) / len(set(expected)),
    )


def by_strings(expected: Sequence[str], hits: Sequence[Judged]) -> Figures:
    """Each string is a question with one answer: the first hit whose title or text holds it."""
    texts = [folded(f"{hit.title}\n{hit.text or hit.snippet}") for hit in hits]
    first = [
        next((rank for rank, text in enumerate(texts, start=1) if folded(wanted) in text), None)
        for wanted in expected
    ]
    ranks = [rank for rank in first if rank is not None]
    return Figures(
        ndcg=_dcg(ranks) / len(expected),
        recall=sum(rank <= RECALL_DEPTH for rank in ranks) / len(expected),
    )


def summarise(
    golden: GoldenSet, verdicts: Sequence[Verdict], latencies_ms: Sequence[float]
) -> Report:
    """Means, percentiles and the gates over all queries."""
    mean = Figures(
        ndcg=math.fsum(v.figures.ndcg for v in verdicts) / len(verdicts),
        recall=math.fsum(v.figures.recall for v in verdicts) / len(verdicts),
    )
    latency = Latency(percentile(latencies_ms, 0.50), percentile(latencies_ms, 0.95))
    return Report(
        tuple(verdicts), mean, latency, tuple(threshold_gates(golden.thresholds, mean, latency))
    )


def regressions(mean: Figures, latency: Latency, last: tuple[Figures, Latency]) -> list[str]:
    """What became worse than the ``last`` run by more than is allowed."""
    last_mean, last_latency = last
    found: list[str] = []
    if mean.ndcg < last_mean.ndcg * (1 - MAX_NDCG_FALL):
        fall = f"from {last_mean.ndcg:.3f} to {mean.ndcg:.3f}"
        found.append(f"nDCG@10 fell {fall}, more than {MAX_NDCG_FALL:.0%}")
    if slower(latency.p95_ms, last_latency.p95_ms):
        rise = f"from {last_latency.p95_ms:.1f} to {latency.p95_ms:.1f} ms"
        found.append(f"p95 latency rose {rise}, more than {MAX_P95_RISE:.0%}")
    return found


def slower(p95_ms: float, before_ms: float) -> bool:
    """Whether the p95 rose by more than is allowed."""
    return p95_ms > max(before_ms * (1 + MAX_P95_RISE), before_ms + NOTICEABLE_MS)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of ``values`` do not exceed (nearest rank)."""
    if not values:
        raise ValueError("no values")
    return sorted(values)[max(math.ceil(share * len(values)), 1) - 1]


def _failures(query: GoldenQuery, hits: Sequence[Hit], figures: Figures) -> list[str]:
    if not hits:
        return ["no hit"]
    failures: list[str] = []
    if query.min_score is not None and figures.ndcg < query.min_score:
        failures.append(f"nDCG@10 {figures.ndcg:.3f} is below min_score {query.min_score:g}")
    if figures.recall < MIN_RECALL:
        failures.append(f"recall@20 {figures.recall:.3f} is below {MIN_RECALL:g}")
    top = hits[:GAIN_DEPTH]
    texts = [folded(hit.text or hit.snippet) for hit in top]
    titled = [folded(f"{hit.title}\n{hit.text or hit.snippet}") for hit in top]
    failures += [
        f"keyword not in the first ten: {w}" for w in _absent(query.expect_keywords, texts)
    ]
    failures += [f"not in the first ten: {w}" for w in _absent(query.expect, titled)]
    return failures


def _absent(expected: Sequence[str], texts: Sequence[str]) -> list[str]:
    return [wanted for wanted in expected if not any(folded(wanted) in text for text in texts)]


def threshold_gates(thresholds: Thresholds, mean: Figures, latency: Latency) -> list[str]:
    """What of the thresholds is not met."""
    failed: list[str] = []
    if thresholds.ndcg_at_10 is not None and mean.ndcg < thresholds.ndcg_at_10:
        failed.append(f"nDCG@10 {mean.ndcg:.3f} is below {thresholds.ndcg_at_10:g}")
    if thresholds.recall_at_20 is not None and mean.recall < thresholds.recall_at_20:
        failed.append(f"recall@20 {mean.recall:.3f} is below {thresholds.recall_at_20:g}")
    limit = thresholds.p95_latency_ms
    if limit is not None and latency.p95_ms > limit:
        failed.append(f"p95 latency {latency.p95_ms:.1f} ms is over {limit:g} ms")
    return failed


def _dcg(ranks: Sequence[int] | range) -> float:
    return math.fsum(1.0 / math.log2(rank + 1) for rank in ranks if rank <= GAIN_DEPTH)


def folded(text: str) -> str:
    """Case and runs of white space make no difference."""
    return " ".join(text.casefold().split())
