"""Unit vectors, whoever made them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from latent_core.domain.errors import IngestFailed
from latent_core.domain.vector import Matrix


def unit_rows(rows: NDArray[np.floating], embedder: str) -> Matrix:
    """``rows`` scaled to unit length, float32; ``IngestFailed`` for NaN, infinite and zero vectors.

    Norms are taken in float64: a float32 square overflows from 1e19 on.
    """
    wide = rows.astype(np.float64)
    norms = np.linalg.norm(wide, axis=1, keepdims=True)
    good = np.isfinite(norms) & (norms > 0)
    if not good.all():
        bad = [int(index) for index in np.flatnonzero(~good)]
        raise IngestFailed(
            f"{embedder} answered a vector that is zero or not a number for text {bad[0] + 1} of {len(rows)}:"
            " such a vector is like nothing; look at that text and at the embedder",
            texts=bad,
        )
    return np.ascontiguousarray(wide / norms, dtype=np.float32)
