"""What a peer can do, as its documentation recommends."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]
Vector = NDArray[np.float32]


class Peer(Protocol):
    """Texts are known by their position. Every list of hits has the best one first."""

    def __init__(self, folder: Path) -> None:
        """An empty store below ``folder``."""
        ...

    def ingest(self, texts: Sequence[str], vectors: Rows) -> float | None:
        """Take all texts with their unit vectors, and build what searches need. Returns the seconds that were only waited
        to be sure that it is built, if any."""
        ...

    def words(self, query: str, k: int) -> list[int]: ...

    def vectors(self, vector: Vector, k: int) -> list[int]: ...

    def hybrid(self, query: str, vector: Vector, k: int) -> list[int]: ...


def fused(lists: Sequence[Sequence[int]], k: int, constant: int = 60) -> list[int]:
    """Reciprocal rank fusion (Cormack et al., 2009), for peers that leave it to their users."""
    scores: dict[int, float] = {}
    for ranked in lists:
        for rank, one in enumerate(ranked, start=1):
            scores[one] = scores.get(one, 0.0) + 1.0 / (constant + rank)
    return sorted(scores, key=lambda one: (-scores[one], one))[:k]


def best(scores: NDArray[Any], k: int) -> list[int]:
    """Positions of the ``k`` highest scores."""
    k = min(k, len(scores))
    top = np.argpartition(-scores, k - 1)[:k]
    return [int(one) for one in top[np.argsort(-scores[top], kind="stable")]]
