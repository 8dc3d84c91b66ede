"""What every engine refuses before it is asked."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from latent_core.domain.errors import Invalid
from latent_core.domain.vector import Vector
from latent_core.vectors.port import Points


def checked_points(points: Points) -> NDArray[np.float32]:
    """The vectors of ``points``; ``Invalid`` for uneven columns and for what is no number."""
    vectors = np.ascontiguousarray(points.vectors, dtype=np.float32)
    lengths = {len(points.ids), len(points.doc_ids), len(points.generations), len(points.chunk_nos)}
    if vectors.ndim != 2 or lengths != {len(vectors)}:
        raise Invalid("points need one vector, document, generation and chunk_no each")
    if not np.isfinite(vectors).all():
        raise Invalid("vectors hold finite numbers only")
    return vectors


def checked_query(vector: Vector, k: int) -> NDArray[np.float32]:
    """``vector`` as the engines want it; ``Invalid`` for what cannot be searched for."""
    query = np.ascontiguousarray(vector, dtype=np.float32)
    if query.ndim != 1 or not np.isfinite(query).all():
        raise Invalid("a query is one vector of finite numbers")
    if k < 0:
        raise Invalid(f"k is {k}: it must not be negative")
    return query
