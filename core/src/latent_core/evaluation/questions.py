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
from latent_core.evaluation.gates import query_failures
from latent_core.evaluation.metrics import Figures, of_documents, of_golden


@dataclass(frozen=True, slots=True)
class Answered:
    """One query, as one setup answered it."""

    id: str
    figures: Figures
    verdict: QueryVerdict


@dataclass(frozen=True, slots=True)
class Questions:
    """What is asked, and the thresholds of the means."""

    queries: Sequence[GoldenQuery | JudgedQuery]
    thresholds: Thresholds
    dataset: str
    """Hash of the queries and what is expected of them: runs compare only when it is the same."""

    @classmethod
    def of(cls, request: EvalRequest, thresholds: Mapping[Any, float]) -> Questions:
        """``thresholds`` of the manifest hold where the set itself names none."""
        queries: Sequence[GoldenQuery | JudgedQuery] = request.judged
        own = Thresholds()
        if request.golden is not None:
            queries = request.golden.queries
            own = request.golden.thresholds
        said = [query.model_dump(mode="json") for query in queries]
        digest = hashlib.sha256(orjson.dumps(said, option=orjson.OPT_SORT_KEYS)).hexdigest()
        return cls(queries, own.filled(thresholds), digest[:32])


def judged(query: GoldenQuery | JudgedQuery, hits: Sequence[Hit]) -> Answered:
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
    return Answered(query.id, figures, verdict)
