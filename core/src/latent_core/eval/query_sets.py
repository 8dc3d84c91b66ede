"""The queries of an evaluation, of whatever form, and how an answer to one of them is judged."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from latent_core.domain.evaluation import EvalRequest, JudgedQuery, QueryVerdict
from latent_core.domain.golden import GoldenQuery, Thresholds
from latent_core.domain.hit import Hit
from latent_core.eval.gates import query_failures
from latent_core.eval.metrics import QueryFigures, of_documents, of_golden


@dataclass(frozen=True, slots=True)
class QueryResult:
    """One query, as one setup answered it."""

    id: str
    figures: QueryFigures
    verdict: QueryVerdict


@dataclass(frozen=True, slots=True)
class QuerySet:
    """What is asked, and the thresholds of the means."""

    queries: Sequence[GoldenQuery | JudgedQuery]
    thresholds: Thresholds
    dataset: str
    """Hash of the queries and what is expected of them: runs compare only when it is the same."""

    @classmethod
    def of(cls, request: EvalRequest, thresholds: Mapping[Any, float]) -> QuerySet:
        """``thresholds`` of the manifest hold where the set itself names none."""
        queries: Sequence[GoldenQuery | JudgedQuery] = request.judged
        own = Thresholds()
        if request.golden is not None:
            queries = request.golden.queries
            own = request.golden.thresholds
        dumped = [query.model_dump(mode="json") for query in queries]
        digest = hashlib.sha256(orjson.dumps(dumped, option=orjson.OPT_SORT_KEYS)).hexdigest()
        return cls(queries, own.filled(thresholds), digest[:32])


def judged(query: GoldenQuery | JudgedQuery, hits: Sequence[Hit]) -> QueryResult:
    """The figures of an answer, and of a golden query the rules it breaks."""
    if isinstance(query, JudgedQuery):
        figures = of_documents(query.relevant, hits)
        failures = [] if hits else ["no hit"]
    else:
        figures = of_golden(query, hits)
        failures = query_failures(query, hits, figures)
    verdict = QueryVerdict(
        id=query.id,
        query=query.query,
        ndcg_at_10=figures.ndcg,
        recall_at_20=figures.recall_20,
        hits=figures.hits,
        failures=failures,
    )
    return QueryResult(query.id, figures, verdict)
