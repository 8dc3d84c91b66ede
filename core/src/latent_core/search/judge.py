"""The relevance of candidates, from their scores in the lists of their container, and ``min_score``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from latent_core.domain.errors import Issue, IssueCode
from latent_core.runtime.tasks import all_or_first_failure
from latent_core.search.container_search import ContainerCandidates
from latent_core.search.cosine_scales import CosineScales
from latent_core.search.fuse import RankedList
from latent_core.search.plan import BM25, EXACT, SUMMARIES, VECTOR, is_foreign
from latent_core.search.ranking import RankedCandidate
from latent_core.search.relevance import CosineScale, WordScale, relevance

DIGITS: Final = 4
BEYOND: Final = -1
"""In place of a chunk_no: a candidate that no list has."""


@dataclass(frozen=True, slots=True)
class RelevanceJudge:
    """Judges the candidates of one container. A candidate that is missing in a list counts as its end: it may have as
    much, and nothing beyond the list has more."""

    cosines: Mapping[int, float]
    cosine_end: float | None
    """None when the list is complete."""
    cosine_scale: CosineScale | None
    """None when cosines do not count."""
    scores: Mapping[int, float]
    score_end: float
    word_scale: WordScale | None
    """None when words do not count."""
    summaries: Mapping[int, float] = field(default_factory=dict)
    """The relevance of the summary of each candidate that stands for its document."""
    summary_end: float = 0.0
    is_exact: bool = False
    """The query has nothing but terms, expressions or a path that every hit has."""

    def relevances(self, chunk_nos: Sequence[int]) -> list[float] | list[None]:
        """One for each candidate; None if no list tells."""
        if self.is_exact:
            return [1.0] * len(chunk_nos)
        nearness = strength = None
        if self.cosine_scale is not None:
            cosines, end = self.cosines, self._cosine_end(self.cosine_scale)
            nearness = self.cosine_scale.nearness(
                np.array([cosines.get(n, end) for n in chunk_nos])
            )
        if self.word_scale is not None:
            scores, end = self.scores, self.score_end
            strength = self.word_scale.strength(np.array([scores.get(n, end) for n in chunk_nos]))
        judged = relevance(nearness, strength)
        if judged is None:
            return [None] * len(chunk_nos)
        if self.summaries:
            judged = np.maximum(judged, [self._of_summary(n) for n in chunk_nos])
        found: list[float] = judged.round(DIGITS).tolist()
        return found

    def _of_summary(self, chunk_no: int) -> float:
        return self.summaries.get(chunk_no, self.summary_end if chunk_no == BEYOND else 0.0)

    def nothing_beyond_reaches(self, min_relevance: float) -> bool:
        """Whether all candidates that the lists do not have yet are below."""
        (beyond,) = self.relevances([BEYOND])
        return beyond is not None and beyond < min_relevance

    def _cosine_end(self, scale: CosineScale) -> float:
        return scale.unrelated if self.cosine_end is None else self.cosine_end


@dataclass(frozen=True, slots=True)
class JudgedCandidates:
    """Candidates with their relevance, without those below ``min_score``."""

    candidates: list[RankedCandidate]
    below: list[RankedCandidate]
    nothing_beyond: bool = False
    """No candidate that the lists do not have yet reaches ``min_score``."""

    def issues(self, min_score: float | None) -> list[Issue]:
        """What ``min_score`` did."""
        if min_score is None:
            return []
        unknown = sum(c.relevance is None for c in self.candidates)
        issues = [_unknown_relevance()] if unknown else []
        # Further chunks of documents that are shown are no other documents.
        if {c.doc_id for c in self.below} - {c.doc_id for c in self.candidates}:
            issues.append(_below(min_score, self.candidates, self.below))
        return issues


def _unknown_relevance() -> Issue:
    message = (
        "min_score has no effect on hits without a relevance, such as those of a query by an image."
    )
    return Issue(code=IssueCode.POLICY, message=message)


def _below(
    min_score: float, kept: Sequence[RankedCandidate], below: Sequence[RankedCandidate]
) -> Issue:
    documents = len({c.doc_id for c in below} - {c.doc_id for c in kept})
    best = max(c.relevance or 0.0 for c in below)
    details = {"min_score": min_score, "below": documents, "best_below": best}
    if kept:
        message = f"{documents} more matching documents are below min_score {min_score:g}."
        return Issue(code=IssueCode.POLICY, message=message, details=details)
    message = (
        f"None of {documents} matching documents reaches min_score {min_score:g}; the best has a relevance of "
        f"{best:.2f}. Lower min_score to see them."
    )
    return Issue(code=IssueCode.NO_HITS, message=message, details=details)


async def judge(
    scales: CosineScales,
    retrieved: Sequence[ContainerCandidates],
    candidates: Sequence[RankedCandidate],
    min_score: float | None,
) -> JudgedCandidates:
    """The candidates in their order, with their relevance."""
    found = await all_or_first_failure([_judge_of(scales, r) for r in retrieved])
    judges = {r.plan.container.id: one for r, one in zip(retrieved, found, strict=True)}
    relevances: dict[str, Iterator[float | None]] = {
        one: iter(judges[one].relevances([c.chunk_no for c in candidates if c.container_id == one]))
        for one in judges
    }
    judged = [RankedCandidate(*c[:-1], next(relevances[c.container_id])) for c in candidates]
    if min_score is None:
        return JudgedCandidates(judged, [])
    return JudgedCandidates(
        [c for c in judged if c.relevance is None or c.relevance >= min_score],
        [c for c in judged if c.relevance is not None and c.relevance < min_score],
        nothing_beyond=all(one.nothing_beyond_reaches(min_score) for one in found),
    )


async def _judge_of(scales: CosineScales, retrieved: ContainerCandidates) -> RelevanceJudge:
    plan, lists = retrieved.plan, retrieved.lists
    # The cosines of a picture, or of a language that the model does not read, are not on the scale of the texts.
    by_words = BM25 in plan.channels and is_foreign(plan.container)
    measured = VECTOR in lists and not plan.by_picture and not by_words
    return RelevanceJudge(
        cosines=_scores(lists.get(VECTOR)),
        cosine_end=retrieved.ends.get(VECTOR),
        cosine_scale=await scales.of(plan.container) if measured else None,
        scores=_scores(lists.get(BM25)),
        score_end=retrieved.ends.get(BM25, 0.0),
        word_scale=retrieved.words if BM25 in lists else None,
        summaries=_scores(lists.get(SUMMARIES)),
        summary_end=retrieved.ends.get(SUMMARIES, 0.0),
        is_exact=plan.channels == (EXACT,),
    )


def _scores(ranked: RankedList[int] | None) -> dict[int, float]:
    return dict(zip(ranked.keys, ranked.scores, strict=True)) if ranked is not None else {}
