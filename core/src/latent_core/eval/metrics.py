"""Metrics of one ranking, as trec_eval computes them (checked against ir_measures).

Each document ranks at its first hit; grades are linear gains; an unjudged document is not relevant. Without hits every
metric is 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from latent_core.domain.golden import GoldenQuery
from latent_core.wire.search import Hit

GAIN_DEPTH: Final = 10
SHALLOW: Final = 20
DEEP: Final = 100


@dataclass(frozen=True, slots=True)
class QueryFigures:
    """Of one query; all in 0..1."""

    ndcg: float
    """At 10."""
    recall_20: float
    recall_100: float
    reciprocal_rank: float
    hits: int
    hit_1: float = 0.0
    """1 if the first document is relevant; for strings, the share of them that the first hit contains."""


def of_ranking(gains: Sequence[float], relevant: Sequence[float], *, hits: int) -> QueryFigures:
    """``gains`` of the ranked documents, best first, 0 for what is not relevant; ``relevant``: all grades."""
    grades = [grade for grade in relevant if grade > 0]
    first = next((rank for rank, gain in enumerate(gains, start=1) if gain > 0), None)
    ideal = _dcg(sorted(grades, reverse=True))
    return QueryFigures(
        ndcg=_dcg(gains) / ideal if ideal else 0.0,
        recall_20=_recall(gains, len(grades), SHALLOW),
        recall_100=_recall(gains, len(grades), DEEP),
        reciprocal_rank=1.0 / first if first else 0.0,
        hits=hits,
        hit_1=float(first == 1),
    )


def of_documents(relevant: Mapping[str, float], hits: Sequence[Hit]) -> QueryFigures:
    """By the documents of the hits; ``relevant`` names them by id, source uri or external id."""
    gains: list[float] = []
    seen: set[object] = set()
    left = dict(relevant)
    for hit in hits:
        if hit.doc_id in seen:
            continue
        seen.add(hit.doc_id)
        names = {str(hit.doc_id), hit.source_uri, hit.external_id or ""} & left.keys()
        gains.append(max((left.pop(name) for name in names), default=0.0))
    return of_ranking(gains, list(relevant.values()), hits=len(hits))


def of_strings(expected: Sequence[str], hits: Sequence[Hit]) -> QueryFigures:
    """The mean over strings. Each string has one relevant hit: the first whose title or text contains it."""
    texts = [folded(f"{hit.title}\n{hit.text or hit.snippet}") for hit in hits]
    each = [
        of_ranking(_only_first(folded(string), texts), [1.0], hits=len(hits)) for string in expected
    ]
    n = len(each)
    return QueryFigures(
        ndcg=math.fsum(f.ndcg for f in each) / n,
        recall_20=math.fsum(f.recall_20 for f in each) / n,
        recall_100=math.fsum(f.recall_100 for f in each) / n,
        reciprocal_rank=math.fsum(f.reciprocal_rank for f in each) / n,
        hits=len(hits),
        hit_1=math.fsum(f.hit_1 for f in each) / n,
    )


def of_golden(query: GoldenQuery, hits: Sequence[Hit]) -> QueryFigures:
    """Metrics by documents if the query names some, else by its strings."""
    if query.expect_docs:
        return of_documents(dict.fromkeys(query.expect_docs, 1.0), hits)
    return of_strings(query.expect or query.expect_keywords, hits)


def _only_first(string: str, texts: Sequence[str]) -> list[float]:
    found = next((place for place, text in enumerate(texts) if string in text), None)
    return [float(place == found) for place in range(len(texts))]


def _recall(gains: Sequence[float], relevant: int, depth: int) -> float:
    return sum(gain > 0 for gain in gains[:depth]) / relevant if relevant else 0.0


def _dcg(gains: Sequence[float]) -> float:
    return math.fsum(
        gain / math.log2(rank + 1) for rank, gain in enumerate(gains[:GAIN_DEPTH], start=1)
    )


def folded(text: str) -> str:
    """Case and runs of white space make no difference."""
    return " ".join(text.casefold().split())
