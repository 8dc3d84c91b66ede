"""A BERT encoder with twelve heads and mean pooling by its paper, in numpy, written without looking at the graph."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from latent_core.domain.vector_types import Vector


def bert_vector(
    weights: Mapping[str, NDArray[np.float32]], ids: Sequence[int], *, layers: int = 6
) -> Vector:
    """The unit vector of one text."""

    def linear(x: NDArray[np.float32], name: str) -> NDArray[np.float32]:
        result: NDArray[np.float32] = x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]
        return result

    def norm(x: NDArray[np.float32], name: str) -> NDArray[np.float32]:
        centred = x - x.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-12)
        result: NDArray[np.float32] = scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]
        return result

    def heads(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x.reshape(len(ids), 12, 32).transpose(1, 0, 2)

    x = weights["embeddings.word_embeddings.weight"][list(ids)]
    x = x + weights["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for layer in range(layers):
        at = f"encoder.layer.{layer}."
        query, key, value = (
            heads(linear(x, f"{at}attention.self.{part}")) for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 2, 1) / np.float32(math.sqrt(32))
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        mixed = (shares @ value).transpose(1, 0, 2).reshape(len(ids), 384)
        x = norm(
            linear(mixed, f"{at}attention.output.dense") + x, f"{at}attention.output.LayerNorm"
        )
        inner = linear(x, f"{at}intermediate.dense")
        inner = 0.5 * inner * (1 + _erf(inner / np.float32(math.sqrt(2))))
        x = norm(linear(inner, f"{at}output.dense") + x, f"{at}output.LayerNorm")
    pooled = x.mean(axis=0)
    unit: Vector = (pooled / np.linalg.norm(pooled)).astype(np.float32)
    return unit


def _erf(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """To 1.5e-7: M. Abramowitz and I. A. Stegun, Handbook of Mathematical Functions (1964), 7.1.26."""
    t = 1 / (1 + 0.3275911 * np.abs(x))
    steps = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
    total = np.zeros_like(t)
    for step in steps:
        total = (total + np.float32(step)) * t
    result: NDArray[np.float32] = np.sign(x) * (1 - total * np.exp(-x * x))
    return result
