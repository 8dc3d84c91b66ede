"""Rerank: sort the first fused candidates (the head) by a slower and more accurate model.

A reranker that reads query and text together scores the head; the rest follows in fused order. If reranking fails,
the fused order applies and an issue says why. If the reranker is late, what it scored of the head is sorted, and the
others keep their fused order below it. Without any reranker the fused order is the answer.

Scores stay in 0..1 and fall along the order, so that later stages can sort and merge them. The head has the
reranker's scores (numbers outside 0..1 are treated as log-odds); the rest has its fused score times the lowest score
of the head.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Final, Generic, NamedTuple, TypeVar

from latent_core.domain.errors import Issue, IssueCode, LatentError, TimedOut
from latent_core.domain.manifest.model import Rerank, SearchMode
from latent_core.models.rerank.resolve import NoReranker, Reranker
from latent_core.search.circuit_breaker import UNANSWERED, CircuitBreakers
from latent_core.search.time_budget import TimeBudget

logger = logging.getLogger(__name__)

MAX_SECONDS: Final = 5.0
"""CONTRACT "Retrieval"."""
_MIN_VALUE: Final = 1e-6
"""The lowest score in the head: with 0, all scores of the rest would be equal."""

_KEPT: Final = "The hits are not reranked and keep their fused order"

K = TypeVar("K", bound=Hashable)


class RerankInput(NamedTuple, Generic[K]):
    """A candidate in the fused order. ``key`` is the caller's identifier."""

    key: K
    score: float
    """0..1"""


class RerankedCandidate(NamedTuple, Generic[K]):
    """A candidate in the new order."""

    key: K
    score: float
    """0..1, falling along the order."""
    reranked: float | None
    """The reranker's own score; None below the head."""


@dataclass(frozen=True, slots=True)
class RerankResult(Generic[K]):
    """All candidates, each once."""

    order: list[RerankedCandidate[K]]
    milliseconds: float = 0.0
    issue: Issue | None = None
    """Why reranking failed; the answer is then partial."""
    hint: Issue | None = None
    """What a person should know although the answer is complete: there is no reranker, or it was late."""

    @property
    def reranked(self) -> int:
        return sum(placed.reranked is not None for placed in self.order)


def head_size(mode: SearchMode, how: Rerank, requested: int | None) -> int:
    """The number of candidates to rerank, 0 for none. ``requested`` is ``rerank_k`` of the request, if given."""
    if mode is not SearchMode.RERANK and not how.enabled:
        return 0
    return how.top_k_in if requested is None else requested


async def rerank(
    reranker: Callable[[], Reranker],
    query: str,
    candidates: Sequence[RerankInput[K]],
    texts: Mapping[K, str],
    deadline: float,
    breakers: CircuitBreakers,
) -> RerankResult[K]:
    """Rerank those of ``candidates`` (fused, best first) that have a text; the others are the rest.

    ``texts``: of the head, the first ``head_size`` candidates. A candidate without words cannot be scored and follows
    the head. ``reranker`` returns the reranker or raises why there is none. ``deadline``: a time of the event loop, at
    most five seconds from now.
    """
    begun = perf_counter()
    head = [c for c in candidates if texts.get(c.key, "").strip()]
    if not head:
        return RerankResult(_as_fused(candidates))
    now = asyncio.get_running_loop().time()
    budget = TimeBudget(now, min(deadline - now, MAX_SECONDS))
    try:
        scores = await _scored(reranker(), query, [texts[c.key] for c in head], budget, breakers)
    except NoReranker as error:
        return RerankResult(_as_fused(candidates), hint=_hint(f"{_KEPT}: {error.message}"))
    except LatentError as error:
        if not isinstance(error, UNANSWERED):  # which the circuit breaker logs once
            logger.warning("rerank_failed", extra={"cause": error.message})
        return RerankResult(_as_fused(candidates), _since(begun), _issue(error))
    pairs = [(c, score) for c, score in zip(head, scores, strict=True) if score is not None]
    judged = {c.key for c, _ in pairs}
    rest = [c for c in candidates if c.key not in judged]
    late = _hint(
        f"The reranker was late: it ordered {len(pairs)} of {len(head)} hits, the others follow in their fused order"
    )
    return RerankResult(
        _falling(_placed([c for c, _ in pairs], [score for _, score in pairs], rest)),
        _since(begun),
        hint=late if len(pairs) < len(head) else None,
    )


async def _scored(
    reranker: Reranker,
    query: str,
    texts: Sequence[str],
    budget: TimeBudget,
    breakers: CircuitBreakers,
) -> Sequence[float | None]:
    """The scores; ``TimedOut`` at the deadline even if the reranker ignores it."""
    try:
        return await breakers.of(reranker.name).run(
            lambda within: reranker.rerank(query, texts, within.deadline), budget, budget
        )
    except TimeoutError as exc:
        raise TimedOut(f"{reranker.name} did not finish before its deadline") from exc


def _placed(
    head: Sequence[RerankInput[K]], scores: Sequence[float], rest: Sequence[RerankInput[K]]
) -> list[RerankedCandidate[K]]:
    """The head best first, ties in fused order; then the rest."""
    pairs = zip(head, scores, _shares(scores), strict=True)
    first = sorted(
        (RerankedCandidate(c.key, share, score) for c, score, share in pairs),
        key=lambda placed: -(placed.reranked or 0.0),
    )
    lowest_score = first[-1].score
    return first + [RerankedCandidate(c.key, c.score * lowest_score, None) for c in rest]


def _shares(scores: Sequence[float]) -> list[float]:
    """Scores in 0..1, in the same order."""
    if any(not 0.0 <= score <= 1.0 for score in scores):
        scores = [0.5 * (1.0 + math.tanh(0.5 * score)) for score in scores]
    return [max(_MIN_VALUE, score) for score in scores]


def _falling(order: Sequence[RerankedCandidate[K]]) -> list[RerankedCandidate[K]]:
    """Make equal scores strictly falling, so that sorting by them keeps the order."""
    falling: list[RerankedCandidate[K]] = []
    above = math.inf
    for placed in order:
        above = min(placed.score, math.nextafter(above, 0.0))
        falling.append(placed._replace(score=above))
    return falling


def _as_fused(candidates: Sequence[RerankInput[K]]) -> list[RerankedCandidate[K]]:
    return [RerankedCandidate(c.key, c.score, None) for c in candidates]


def _issue(error: LatentError) -> Issue:
    """The issue for the searcher: a timeout, or a service that is unavailable."""
    late = isinstance(error, TimedOut)
    return Issue(
        code=IssueCode.TIMEOUT if late else IssueCode.UNAVAILABLE,
        message=f"{_KEPT}: {error.message}",
        details={"stage": "rerank", "cause": error.code.value, **error.details},
    )


def _hint(message: str) -> Issue:
    return Issue(code=IssueCode.POLICY, message=message, details={"stage": "rerank"})


def _since(begun: float) -> float:
    return round((perf_counter() - begun) * 1000, 3)
