"""True BM25 (Lucene's variant) over fetched postings: exact, in float64, the same answer every time.

    score(d) = sum over query terms of  idf · tf / (tf + k1 · (1 - b + b · length / average))
    idf      = ln(1 + (N - df + 0.5) / (df + 0.5))

N, average and df are of live chunks. A stop word is held by every chunk of its language, though no
posting says so: in a container of several languages its df counts them. (Else one English text among
Spanish ones would make "de" the rarest word of all.) Contributions are summed in the query's order of terms, so that
chunks with equal statistics get equal scores to the last bit and fall into ord order.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from latent_core.keywords.analyser import unindexed
from latent_core.keywords.packing import Packed, Postings, unpack, unpack_ords
from latent_core.keywords.port import KeywordHits, TermUse

K1: Final = 1.2
B: Final = 0.75

DENSE_FACTOR: Final = 5
"""An array over all ords in reach is used when it is at most so many times longer than the postings;
otherwise they are sorted (ords are never used again, so a busy container's may lie far apart)."""

Ords = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one statement read: all of it of one moment."""

    live_chunks: int
    live_length: int
    languages: Mapping[str, int]
    """Language to chunks published in it; their shares are what counts."""
    dead: Sequence[bytes]
    rows: Mapping[str, Sequence[Packed]]

    @property
    def rows_read(self) -> int:
        return sum(map(len, self.rows.values()))

    @property
    def postings(self) -> int:
        return sum(len(row) for rows in self.rows.values() for row in rows)

    def unseen(self, term: str) -> float:
        """Live chunks in whose languages ``term`` is a stop word."""
        if len(self.languages) < 2:
            return 0.0
        silent = unindexed(frozenset(self.languages)).get(term, ())
        share = sum(self.languages[language] for language in silent) / sum(self.languages.values())
        return share * self.live_chunks


@dataclass(frozen=True, slots=True)
class _Matches:
    """Chunks that hold a term, in ord order, with their scores."""

    ords: NDArray[np.int64]
    scores: NDArray[np.float64]


def rank(snapshot: Snapshot, terms: Sequence[str], k: int, allowed: Ords | None) -> KeywordHits:
    """The best ``k`` by BM25, only among ``allowed`` when it is given."""
    counts = Counter(terms)
    opened = {term: unpack(snapshot.rows[term]) for term in counts if term in snapshot.rows}
    reach = _Reach.of(list(opened.values()))
    if len(dead := unpack_ords(snapshot.dead)):
        buried = reach.membership(dead)
        opened = {term: found.only(~buried.of(found.ords)) for term, found in opened.items()}
    uses = tuple(_use(term, count, opened.get(term), snapshot) for term, count in counts.items())
    matches = _sum(snapshot, [(use, opened[use.term]) for use in uses if use.df], reach)
    if allowed is not None:
        matches = _among(matches, allowed)
    best = _best(matches, k)
    return KeywordHits(
        ords=matches.ords[best],
        scores=matches.scores[best],
        matched=len(matches.ords),
        live_chunks=snapshot.live_chunks,
        terms=uses,
        rows_read=snapshot.rows_read,
    )


def idf(chunks: float, df: float) -> float:
    """Of a term that ``df`` of ``chunks`` live chunks hold; positive."""
    return math.log(1 + (chunks - df + 0.5) / (df + 0.5))


def _use(term: str, count: int, found: Postings | None, snapshot: Snapshot) -> TermUse:
    df = 0 if found is None else len(found)
    held = df + snapshot.unseen(term)
    # Statistics that are wrong (doctor says so) must not break the search.
    return TermUse(term, count, df, idf(max(snapshot.live_chunks, held), held))


@dataclass(frozen=True, slots=True)
class _Membership:
    """A set of ords that arrays of ords are held against."""

    sorted: Ords
    first: int
    mask: NDArray[np.bool_] | None

    def of(self, ords: Ords) -> NDArray[np.bool_]:
        if self.mask is None:
            return np.isin(ords, self.sorted)
        held: NDArray[np.bool_] = self.mask[ords - np.uint32(self.first)]
        return held


@dataclass(frozen=True, slots=True)
class _Reach:
    """The ords that were fetched: the first, how far they reach, how many there are."""

    first: int
    span: int
    postings: int

    @classmethod
    def of(cls, found: Sequence[Postings]) -> _Reach:
        filled = [postings.ords for postings in found if len(postings)]
        first = min((int(ords.min()) for ords in filled), default=0)
        last = max((int(ords.max()) for ords in filled), default=0)
        return cls(first, last - first + 1, sum(map(len, filled)))

    @property
    def dense(self) -> bool:
        return self.span <= DENSE_FACTOR * self.postings

    def membership(self, ords: Ords) -> _Membership:
        if not self.dense:
            return _Membership(ords, self.first, None)
        within = ords[(ords >= self.first) & (ords < self.first + self.span)]
        mask = np.zeros(self.span, np.bool_)
        mask[within - np.uint32(self.first)] = True
        return _Membership(within, self.first, mask)


def _sum(snapshot: Snapshot, used: Sequence[tuple[TermUse, Postings]], reach: _Reach) -> _Matches:
    if not used:
        return _Matches(np.empty(0, np.int64), np.empty(0))
    average = snapshot.live_length / max(snapshot.live_chunks, 1) or 1.0
    weights = np.concatenate([_contributions(use, found, average) for use, found in used])
    ords = np.concatenate([found.ords for _, found in used])
    if not reach.dense:
        distinct, places = np.unique(ords, return_inverse=True)
        return _Matches(distinct.astype(np.int64), _totals(places, weights))
    scores = _totals(ords - np.uint32(reach.first), weights)
    matched = np.flatnonzero(scores)
    return _Matches(matched + reach.first, scores[matched])


def _totals(places: NDArray[Any], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of weights at each place, added in their order."""
    return np.bincount(places, weights).astype(np.float64, copy=False)


def _contributions(use: TermUse, found: Postings, average: float) -> NDArray[np.float64]:
    tf = found.tfs.astype(np.float64)
    norm = found.lens * (K1 * B / average)
    norm += K1 * (1 - B)
    norm += tf
    tf *= use.count * use.idf
    tf /= norm
    return tf


def _among(matches: _Matches, allowed: Ords) -> _Matches:
    kept = np.isin(matches.ords, allowed.astype(np.int64))
    return _Matches(matches.ords[kept], matches.scores[kept])


def _best(matches: _Matches, k: int) -> NDArray[np.intp]:
    """Places of the ``k`` best; at the cut, too, equal scores go by ord."""
    scores = matches.scores
    if k <= 0:
        return np.empty(0, np.intp)
    places = np.arange(len(scores))
    if len(scores) > k:
        least = np.partition(scores, len(scores) - k)[len(scores) - k]
        above = np.flatnonzero(scores > least)
        level = np.flatnonzero(scores == least)[: k - len(above)]
        places = np.concatenate([above, level])
    # Places are in ord order, and a stable sort leaves equal scores so.
    places.sort()
    return places[np.argsort(-scores[places], kind="stable")]
