"""BM25 (Lucene's variant) over fetched postings: exact, in float64, deterministic.

    score(d) = sum over query terms of  idf · tf / (tf + k1 · (1 - b + b · length / average))
    idf      = ln(1 + (N - df + 0.5) / (df + 0.5))

N, average and df count live chunks: those of the container for its own order, since a word that all of its texts
contain says little there; and those of all containers of a search for scores that compare between them, since a word
that is rare in one of them only is not rare. A stop word occurs in every chunk of its language without postings: in a
container of several languages its df includes them. (Otherwise one English text among Spanish ones would make "de"
the rarest word.) Contributions are added in the query's order of terms, so that chunks with equal statistics get
exactly equal scores, ordered by chunk_no.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from latent_core.bm25.analyser import unindexed
from latent_core.bm25.packing import PackedPostings, Postings, unpack, unpack_chunk_nos
from latent_core.bm25.port import KeywordHits, TermUse

K1: Final = 1.2
B: Final = 0.75

DENSE_FACTOR: Final = 40
"""An array over all chunk_nos in range is used if it is at most this many times longer than the postings; otherwise
they are sorted (chunk_nos are never reused, so they can be far apart)."""

ChunkNos = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The result of one statement, from one snapshot."""

    live_chunks: int
    live_length: int
    languages: Mapping[str, int]
    """Language to number of chunks published in it; only their shares matter."""
    dead: Sequence[bytes]
    rows: Mapping[str, Sequence[PackedPostings]]

    @property
    def postings(self) -> int:
        return sum(len(row) for rows in self.rows.values() for row in rows)


@dataclass(frozen=True, slots=True)
class LivePostings:
    """The postings of a search's terms in one container, without dead chunks: those of one term after the other."""

    terms: Sequence[str]
    found: Postings
    dfs: Sequence[int]
    """Live chunks with each of ``terms``."""
    rows_read: int

    def only(self, terms: Sequence[str]) -> LivePostings:
        """Those of ``terms``, in this order; none of a term that was not asked for."""
        ends = np.cumsum([0, *self.dfs])
        spans = {term: (ends[n], ends[n + 1]) for n, term in enumerate(self.terms)}
        chosen = [spans.get(term, (0, 0)) for term in terms]
        dfs = [int(end - begin) for begin, end in chosen]
        if [term for term in terms if term in spans] == list(self.terms):
            return LivePostings(terms, self.found, dfs, self.rows_read)
        places = [np.empty(0, np.int64), *(np.arange(*span) for span in chosen)]
        return LivePostings(terms, self.found.only(np.concatenate(places)), dfs, self.rows_read)


@dataclass(frozen=True, slots=True)
class KeywordStatistics:
    """What the weights of a search's terms depend on, summed over its containers."""

    live_chunks: int
    live_length: int
    languages: Mapping[str, int]
    dfs: Mapping[str, int]

    @property
    def average_length(self) -> float:
        return self.live_length / max(self.live_chunks, 1) or 1.0

    def uncounted_df(self, term: str) -> float:
        """Live chunks in whose languages ``term`` is a stop word."""
        if len(self.languages) < 2:
            return 0.0
        silent = unindexed(frozenset(self.languages)).get(term, ())
        share = sum(self.languages[language] for language in silent) / sum(self.languages.values())
        return share * self.live_chunks

    def use(self, term: str, count: int) -> TermUse:
        """The weight of a term that the query contains ``count`` times."""
        df = self.dfs.get(term, 0)
        held = df + self.uncounted_df(term)
        # Statistics that are wrong (doctor says so) must not break the search.
        return TermUse(term, count, df, idf(max(self.live_chunks, held), held))


def live_postings(snapshot: Snapshot, terms: Sequence[str]) -> LivePostings:
    """The postings of ``terms`` (each once) without those of dead chunks."""
    held = [snapshot.rows.get(term, ()) for term in terms]
    # All terms in one array, one after the other: a numpy call costs more than a hundred postings.
    found = unpack([row for rows in held for row in rows])
    dfs = [sum(map(len, rows)) for rows in held]
    if len(dead := unpack_chunk_nos(snapshot.dead)):
        owners = np.repeat(np.arange(len(dfs)), dfs)
        live = ~_among(found.chunk_nos, dead)
        found, dfs = found.only(live), np.bincount(owners[live], minlength=len(dfs)).tolist()
    return LivePostings(terms, found, dfs, sum(map(len, held)))


def statistics(parts: Sequence[tuple[Snapshot, LivePostings]]) -> KeywordStatistics:
    """The statistics of several containers as if they were one."""
    languages: Counter[str] = Counter()
    dfs: Counter[str] = Counter()
    for snapshot, live in parts:
        languages.update(snapshot.languages)
        dfs.update(dict(zip(live.terms, live.dfs, strict=True)))
    return KeywordStatistics(
        sum(snapshot.live_chunks for snapshot, _ in parts),
        sum(snapshot.live_length for snapshot, _ in parts),
        languages,
        dfs,
    )


@dataclass(frozen=True, slots=True)
class ScoredChunks:
    """Chunks with a term, in chunk_no order, with their scores."""

    chunk_nos: NDArray[np.int64]
    scores: NDArray[np.float64]
    """By the statistics of their container."""
    common: NDArray[np.float64]
    """By those of all containers of the search."""
    uses: tuple[TermUse, ...]
    live_chunks: int
    rows_read: int

    def best(self, k: int, allowed: ChunkNos | None = None) -> KeywordHits:
        """The best ``k``, only among ``allowed`` if given."""
        chunk_nos, scores, common = self.chunk_nos, self.scores, self.common
        if allowed is not None:
            kept = np.isin(chunk_nos, allowed.astype(np.int64))
            chunk_nos, scores, common = chunk_nos[kept], scores[kept], common[kept]
        best = _best(scores, k)
        return KeywordHits(
            chunk_nos=chunk_nos[best],
            scores=scores[best],
            common=common[best],
            matched=len(chunk_nos),
            live_chunks=self.live_chunks,
            terms=self.uses,
            rows_read=self.rows_read,
        )


def score(
    live: LivePostings, terms: Sequence[str], own: KeywordStatistics, common: KeywordStatistics
) -> ScoredChunks:
    """BM25 of a container's chunks for ``terms``; a repeated term counts repeatedly. ``own``: the statistics of the
    container; ``common``: those of all containers of the search, the same object if there is no other."""
    counts = Counter(terms)
    held = live.only(list(counts))
    uses = _uses(counts, own)
    chunk_nos, scores = _sum(held.found, _contributions(own.average_length, uses, held))
    among_all = scores
    if common is not own:
        # The same chunks in the same order: every weight is positive.
        weights = _contributions(common.average_length, _uses(counts, common), held)
        _, among_all = _sum(held.found, weights)
    return ScoredChunks(chunk_nos, scores, among_all, uses, own.live_chunks, held.rows_read)


def _uses(counts: Mapping[str, int], weighing: KeywordStatistics) -> tuple[TermUse, ...]:
    return tuple(weighing.use(term, count) for term, count in counts.items())


def idf(chunks: float, df: float) -> float:
    """The idf of a term in ``df`` of ``chunks`` live chunks; positive."""
    return math.log(1 + (chunks - df + 0.5) / (df + 0.5))


def _contributions(
    average_length: float, uses: Sequence[TermUse], live: LivePostings
) -> NDArray[np.float64]:
    weights = np.repeat([use.count * use.idf for use in uses], live.dfs)
    tf = live.found.tfs.astype(np.float64)
    norm = live.found.lens * (K1 * B / average_length)
    norm += K1 * (1 - B)
    norm += tf
    tf *= weights
    tf /= norm
    return tf


def _sum(
    found: Postings, contributions: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Chunks in chunk_no order with their scores; contributions are added in order."""
    first, span = _reach(found.chunk_nos)
    if span > DENSE_FACTOR * len(found):
        distinct, places = np.unique(found.chunk_nos, return_inverse=True)
        return distinct.astype(np.int64), _totals(places, contributions)
    scores = _totals(found.chunk_nos - np.uint32(first), contributions)
    # Several times faster than asking the floats themselves.
    matched = np.flatnonzero(scores > 0)
    return matched + first, scores[matched]


def _totals(places: NDArray[Any], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.bincount(places, weights).astype(np.float64, copy=False)


def _reach(chunk_nos: ChunkNos) -> tuple[int, int]:
    """The first chunk_no, and the distance to the last."""
    if not len(chunk_nos):
        return 0, 0
    first = int(chunk_nos.min())
    return first, int(chunk_nos.max()) - first + 1


def _among(chunk_nos: ChunkNos, others: ChunkNos) -> NDArray[np.bool_]:
    """Which of ``chunk_nos`` are among ``others``."""
    first, span = _reach(chunk_nos)
    if span > DENSE_FACTOR * len(chunk_nos):
        return np.isin(chunk_nos, others)
    within = others[(others >= first) & (others < first + span)]
    mask = np.zeros(span, np.bool_)
    mask[within - np.uint32(first)] = True
    held: NDArray[np.bool_] = mask[chunk_nos - np.uint32(first)]
    return held


def _best(scores: NDArray[np.float64], k: int) -> NDArray[np.intp]:
    """Indexes of the ``k`` best; equal scores are ordered by index (chunk_no order), also at the cut."""
    if k <= 0:
        return np.empty(0, np.intp)
    places = np.arange(len(scores))
    if len(scores) > k:
        threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
        above = np.flatnonzero(scores > threshold)
        level = np.flatnonzero(scores == threshold)[: k - len(above)]
        places = np.sort(np.concatenate([above, level]))
    # A stable sort leaves equal scores in their order.
    return places[np.argsort(-scores[places], kind="stable")]
