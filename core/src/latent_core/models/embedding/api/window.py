"""Texts that are longer than a server reads: sent in parts, and servers that cut them without an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from latent_core.domain.vector_types import Matrix, Vector
from latent_core.models.embedding.picture import windows
from latent_core.models.embedding.port import Tokenizer, unit_rows

MAX_HALVINGS: Final = 4
"""A text that is refused for its length is sent in up to 16 parts."""
SAME: Final = 1e-5
"""Vectors with a smaller cosine distance are the same: rounding depends on the rest of a batch."""
END_SHARE: Final = 0.25
_OTHER_END: Final = "zinc harbour violin 4711 permafrost "


def cut_texts(
    texts: Sequence[str], tokenizer: Tokenizer, window: int | None
) -> list[list[str]] | None:
    """Each text in parts of at most ``window`` tokens; None if no text is longer."""
    if window is None or max(tokenizer.count(texts), default=0) <= window:
        return None
    return [windows(text, tokenizer, window) for text in texts]


def halves(text: str, tokenizer: Tokenizer) -> list[str]:
    tokens = tokenizer.count([text])[0]
    return windows(text, tokenizer, -(-tokens // 2)) if tokens > 1 else [text]


def mean_rows(
    rows: Matrix, parts: Sequence[Sequence[str]], tokenizer: Tokenizer, name: str
) -> Matrix:
    """One row per text: the mean of the rows of its parts by their tokens, of unit length."""
    made = np.empty((len(parts), rows.shape[1]), np.float64)
    start = 0
    for place, pieces in enumerate(parts):
        weights = np.maximum(tokenizer.count(pieces), 1)
        made[place] = np.average(rows[start : start + len(pieces)], axis=0, weights=weights)
        start += len(pieces)
    return unit_rows(made, name)


def with_another_end(text: str, tokenizer: Tokenizer) -> str:
    """``text`` with other words in place of its last quarter."""
    offsets = tokenizer.offsets(text)
    start = offsets[int(len(offsets) * (1 - END_SHARE))][0]
    missing = len(text) - start
    return text[:start] + (_OTHER_END * (missing // len(_OTHER_END) + 1))[:missing]


def is_cut(whole: Vector, changed: Vector) -> bool:
    """Whether a vector stayed the same when the end of its text changed."""
    return 1.0 - float(whole @ changed) < SAME
