"""Cosine similarity of unit vectors, and the best by it: the same for collections of every size."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

_UNIT_TOLERANCE: Final = 1e-6
"""A squared length this near to 1 counts as 1."""


def normalised(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows of unit length, as the engine stores them; rows of zeros stay."""
    squares = np.einsum("ij,ij->i", vectors, vectors)
    off = (np.abs(squares - 1) > _UNIT_TOLERANCE) & (squares > np.finfo(np.float32).eps)
    if not off.any():
        return vectors
    unit = vectors.copy()
    unit[off] /= np.sqrt(squares[off])[:, None]
    return unit


def similarities(vectors: NDArray[np.float32], unit: NDArray[np.float32]) -> NDArray[np.float32]:
    """The product of each row with ``unit``. Not ``@``: it rounds equal rows differently, and equal vectors must have
    equal scores."""
    scores: NDArray[np.float32] = np.einsum("ij,j->i", vectors, unit)
    return scores


def best_rows(
    scores: NDArray[np.float32], chunk_nos: NDArray[np.int64], k: int
) -> NDArray[np.intp]:
    """Rows of the ``k`` best, by descending score, then chunk_no."""
    rows = np.arange(len(scores))
    if 0 < k < len(scores):
        worst = np.partition(scores, len(scores) - k)[len(scores) - k]
        rows = np.flatnonzero(scores >= worst)
    order = np.lexsort((chunk_nos[rows], -scores[rows]))
    return rows[order[:k]]
