"""Relevance of a hit, 0..1: comparable between queries and containers, unlike scores, which fusion takes from ranks.

Two measurements of a chunk are made comparable and combined by a logistic function (ADR 0033):

- *nearness*: its cosine on the container's own scale, where 0 is the cosine of two unrelated chunks and 1 that of the
  most alike of a thousand pairs. So it does not matter that one model puts unrelated texts at 0.1 and another at 0.8.
- *share*: its BM25 score as a share of what the query can reach, times the root of the number of query terms, since a
  long question finds a smaller share of its words even in its answer.

Both can only raise the relevance. The coefficients were fitted on nine judged sets, so that 0.5 separates relevant
from irrelevant hits if both are equally frequent. They were checked on each set with the other eight.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from latent_core.domain.vector_types import Matrix

Numbers = TypeVar("Numbers", float, NDArray[np.float64])
"""One value, or those of many hits."""

WEAK_BELOW: Final = 0.5
"""A hit below is rather irrelevant than relevant."""

ALIKE_QUANTILE: Final = 0.999
ALIKE_SIGMAS: Final = 4.3
"""The same quantile of a container with too few pairs for it, in sigmas above the mean."""
MIN_PAIRS: Final = 10
PAIRS_OF_QUANTILE: Final = 2000
COPY: Final = 0.98
"""A pair this near is one text twice, and says nothing about the texts of the container."""
PRIOR_PAIRS: Final = 1000
"""Weight of the embedder's usual scale against the container's own pairs."""


@dataclass(frozen=True, slots=True)
class CosineScale:
    """The cosines of pairs of a container's chunks."""

    unrelated: float
    alike: float

    def nearness(self, cosine: Numbers) -> Numbers:
        return (cosine - self.unrelated) / (self.alike - self.unrelated)


MINILM_SCALE: Final = CosineScale(unrelated=0.16, alike=0.69)
"""The mean over the judged sets."""


@dataclass(frozen=True, slots=True)
class WordScale:
    """What a query can reach in a container."""

    attainable: float
    """More than any chunk's BM25 score, without names of definitions."""
    terms: int
    """Distinct terms of the query."""

    def strength(self, score: Numbers) -> Numbers:
        share = np.clip(score / self.attainable, 0.0, 1.0)
        return cast(Numbers, np.sqrt(share * math.sqrt(self.terms)))


def relevance(nearness: Numbers | None, strength: Numbers | None) -> Numbers | None:
    """0..1, rising with both; None for what is not known, and if nothing is."""
    if nearness is not None and strength is not None:
        logit = 4.70 * nearness + 3.48 * strength - 4.95
    elif nearness is not None:
        logit = 6.23 * nearness - 3.50
    elif strength is not None:
        logit = 6.57 * strength - 4.87
    else:
        return None
    return cast(Numbers, 0.5 * (1.0 + np.tanh(0.5 * logit)))  # type: ignore[redundant-cast]


def is_weak(judged: float | None) -> bool:
    return judged is not None and judged < WEAK_BELOW


def cosine_scale(
    vectors: Matrix, chunk_nos: NDArray[np.int64], usual: CosineScale | None
) -> CosineScale | None:
    """The scale of a container from a sample of its points; the less pairs it has, the nearer to the ``usual`` one of
    its embedder. None if there are too few pairs and no usual scale."""
    cosines = _pairs(vectors, chunk_nos)
    if len(cosines) < MIN_PAIRS:
        return usual
    mean = float(cosines.mean())
    alike = float(np.quantile(cosines, ALIKE_QUANTILE))
    if len(cosines) < PAIRS_OF_QUANTILE:
        alike = max(alike, mean + ALIKE_SIGMAS * float(cosines.std()))
    if usual is not None:
        own = len(cosines) / (len(cosines) + PRIOR_PAIRS)
        mean = own * mean + (1 - own) * usual.unrelated
        alike = own * alike + (1 - own) * usual.alike
    return CosineScale(mean, max(min(alike, 1.0), mean + 1e-3))


def _pairs(vectors: Matrix, chunk_nos: NDArray[np.int64]) -> NDArray[np.float32]:
    """Cosines of all pairs of different chunks and different texts."""
    first, second = np.triu_indices(len(vectors), 1)
    cosines = (vectors @ vectors.T)[first, second]
    found: NDArray[np.float32] = cosines[(chunk_nos[first] != chunk_nos[second]) & (cosines < COPY)]
    return found
