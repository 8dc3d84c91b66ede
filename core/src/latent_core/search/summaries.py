"""The channel of summaries: their candidates, and what they stand for (docs/adr/0055-summaries.md)."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import numpy as np

from latent_core.bm25.port import KeywordHits
from latent_core.domain.retrieval import Fusion
from latent_core.search.fuse import RankedList, fuse
from latent_core.search.plan import SUMMARIES
from latent_core.search.relevance import CosineScale, WordScale, relevance
from latent_core.search.rounds import NO_CHUNKS, ChannelCandidates


def summary_candidates(
    near: ChannelCandidates | None,
    words: KeywordHits | None,
    depth: int,
    scale: CosineScale | None,
) -> ChannelCandidates:
    """Summaries by relevance, which compares between queries and containers. ``near``: by cosine; ``words``: by BM25.
    A summary that one of the lists does not have counts there as its end."""
    if scale is None:
        near = None
    if words is not None and not words.words:
        words = None
    parts = [part.chunk_nos for part in (near, words) if part is not None]
    chunk_nos = np.unique(np.concatenate([NO_CHUNKS, *parts]))
    nearness = strength = None
    if near is not None and scale is not None:
        end = scale.unrelated if near.exhausted else _last(near.scores, scale.unrelated)
        nearness = scale.nearness(_values(chunk_nos, near.chunk_nos, near.scores, end))
    if words is not None:
        full = len(words.chunk_nos) >= depth
        end = _last(words.scores, 0.0) if full else 0.0
        strength = WordScale(words.attainable, len(words.words)).strength(
            _values(chunk_nos, words.chunk_nos, words.scores, end)
        )
    scores = relevance(nearness, strength)
    if scores is None:
        return ChannelCandidates(NO_CHUNKS, np.empty(0, np.float64), exhausted=True)
    order = np.lexsort((chunk_nos, -scores))
    return ChannelCandidates(
        chunk_nos[order],
        scores[order],
        exhausted=(near is None or near.exhausted)
        and (words is None or len(words.chunk_nos) < depth),
    )


def _last(scores: np.ndarray, otherwise: float) -> float:
    return float(scores[-1]) if len(scores) else otherwise


def _values(
    chunk_nos: np.ndarray, known: np.ndarray, scores: np.ndarray, otherwise: float
) -> np.ndarray:
    """The scores of ``chunk_nos`` (ascending), among which all ``known`` are."""
    values = np.full(len(chunk_nos), otherwise, np.float64)
    values[np.searchsorted(chunk_nos, known)] = scores
    return values


def for_documents(
    lists: Mapping[str, RankedList[int]], documents: Mapping[int, UUID], how: Fusion
) -> dict[str, RankedList[int]]:
    """The lists, with each summary replaced by the best original candidate of its document, if there is one."""
    summaries = lists.get(SUMMARIES)
    if summaries is None or not summaries.keys:
        return dict(lists)
    originals = {name: ranked for name, ranked in lists.items() if name != SUMMARIES}
    best: dict[UUID, int] = {}
    for candidate in fuse(originals, how):
        best.setdefault(documents[candidate.key], candidate.key)
    standing: dict[int, float] = {}
    for key, score in zip(summaries.keys, summaries.scores, strict=True):
        standing.setdefault(best.get(documents[key], key), score)
    return {**originals, SUMMARIES: RankedList(list(standing), list(standing.values()))}
