"""The graph of a BERT encoder with mean pooling and unit length, and its weights.

Built from published weights with numpy alone, using the runtime's fused operators. Two precisions:
float32, and int8 with one scale per weight column and one activation scale per run. With int8 a vector
depends on the other texts of the run, so int8 texts are run one by one (see ``local.py``). The table of words
may be stored in 4 bits, which are unpacked for the words of a text only.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from latent_core.domain.errors import Invalid
from latent_core.models.embedding.onnx_format import MICROSOFT, ElementType, Graph, StoredTensor

PAGE: Final = 4096  # tensors begin at a page boundary, so that each can be mapped separately
_INT8_MAX: Final = 127
_SMALLEST: Final = np.finfo(np.float32).tiny  # a column of zeros needs a scale, too

Floats = NDArray[np.float32]


def read_safetensors(path: Path) -> Mapping[str, Floats]:
    """The float32 tensors of a safetensors file, memory-mapped.

    The file is a little-endian uint64 length, that many bytes of JSON, then the data.
    """
    try:
        raw = np.memmap(path, dtype=np.uint8, mode="r")
    except (OSError, ValueError) as exc:
        raise Invalid(f"the weights {path.name} cannot be read: {exc}; reinstall them") from exc
    (length,) = struct.unpack("<Q", bytes(raw[:8]))
    header: dict[str, Any] = json.loads(bytes(raw[8 : 8 + length]))
    data = raw[8 + length :]
    return {
        name: data[slice(*entry["data_offsets"])].view("<f4").reshape(entry["shape"])
        for name, entry in header.items()
        if entry.get("dtype") == "F32"
    }


def quantised(matrix: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Symmetric int8 with one scale per column: ``matrix ≈ values * scales``."""
    scales = np.maximum(np.abs(matrix).max(axis=0) / np.float32(_INT8_MAX), _SMALLEST)
    return np.rint(matrix / scales).astype(np.int8), scales.astype(np.float32)


@dataclass(slots=True)
class WeightFile:
    """A weights file being written."""

    file: BinaryIO
    name: str
    _end: int = field(default=0)

    def add(self, name: str, array: NDArray[Any]) -> StoredTensor:
        little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        offset = -(-self._end // PAGE) * PAGE
        self.file.write(b"\0" * (offset - self._end))
        self.file.write(little.data)
        self._end = offset + little.nbytes
        kind = ElementType.of(little.dtype)
        return StoredTensor(name, kind, little.shape, self.name, offset, little.nbytes)


@dataclass(frozen=True, slots=True)
class PackedRows:
    """A matrix in 4 bits. A row is divided into blocks of 32 values with one scale; a byte holds value ``n`` of a block
    in its low half and value ``n + 16`` in its high one (GGML's format Q4_0)."""

    halves: NDArray[np.uint8]
    """(rows, blocks, 16)"""
    scales: NDArray[np.float16]
    """(rows, blocks)"""

    def unpacked(self) -> Floats:
        """(rows, width), float32."""
        low = (self.halves & 15).astype(np.float32) - 8
        high = (self.halves >> 4).astype(np.float32) - 8
        values = np.concatenate([low, high], axis=2) * self.scales[:, :, None].astype(np.float32)
        result: Floats = values.reshape(len(self.halves), -1)
        return result


HEADS: Final = 12
EPSILON: Final = 1e-12
OUTPUT: Final = "embedding"


class Precision(StrEnum):
    FP32 = "fp32"
    INT8 = "int8"


@dataclass(frozen=True, slots=True)
class _GraphBuilder:
    graph: Graph
    weights: Mapping[str, Floats]
    store: WeightFile
    precision: Precision

    def stored(self, name: str, array: Floats) -> str:
        return self.graph.stored(self.store.add(name, array))

    def norm_parameters(self, prefix: str) -> list[str]:
        parts = (f"{prefix}.weight", f"{prefix}.bias")
        return [self.graph.constant(part, self.weights[part]) for part in parts]

    def quantised(self, name: str, matrix: Floats) -> tuple[str, str]:
        values, scales = quantised(matrix)
        stored = self.graph.stored(self.store.add(name, values))
        return stored, self.graph.constant(f"{name}.scales", scales)

    def dense(self, value: str, weight: str, name: str) -> str:
        """``value`` times a linear layer's weight, stored as (out, in); no bias."""
        matrix = self.weights[weight].T
        if self.precision is Precision.FP32:
            return self.graph.node("MatMul", [value, self.stored(weight, matrix)], name)
        inputs = [value, *self.quantised(weight, matrix)]
        return self.graph.node("DynamicQuantizeMatMul", inputs, name, domain=MICROSOFT)

    def add_and_normalise(self, value: str, residual: str, bias: str, norm: str, name: str) -> str:
        scale, shift = self.norm_parameters(norm)
        offset = self.graph.constant(bias, self.weights[bias])
        inputs = [value, residual, scale, shift, offset]
        return self.graph.node(
            "SkipLayerNormalization", inputs, name, domain=MICROSOFT, epsilon=EPSILON
        )


def bert(
    name: str,
    weights: Mapping[str, Floats],
    store: WeightFile,
    precision: Precision,
    words: PackedRows | None = None,
) -> bytes:
    """The model file; its weights are written to ``store``. ``words`` replaces the table of words in ``weights``.

    Inputs ``input_ids`` and ``attention_mask``, int64 (texts, tokens); output ``embedding``, float32
    (texts, dims), rows of unit length.
    """
    build = _GraphBuilder(Graph(name), weights, store, precision)
    graph = build.graph
    ids = graph.input("input_ids", ElementType.INT64, ["texts", "tokens"])
    mask = graph.input("attention_mask", ElementType.INT64, ["texts", "tokens"])
    for number in range(3):
        graph.constant(f"axis{number}", np.array([number], np.int64))
    value = _embed(build, ids, words)
    mask32 = graph.node("Cast", [mask], "mask_int32", to=int(ElementType.INT32))
    for layer in range(_layers(weights)):
        value = _layer(build, value, mask32, f"encoder.layer.{layer}")
    _pool(graph, value, mask)
    dims = weights["embeddings.LayerNorm.weight"].shape[0]
    graph.output(OUTPUT, ElementType.FLOAT, ["texts", dims])
    return graph.model()


def _layers(weights: Mapping[str, Floats]) -> int:
    return sum(name.endswith("intermediate.dense.weight") for name in weights)


def _embed(build: _GraphBuilder, ids: str, packed: PackedRows | None) -> str:
    """Words plus positions. There is only one segment: its vector is added to every position."""
    graph, weights = build.graph, build.weights
    if packed is None:
        table = build.stored("word_embeddings", weights["embeddings.word_embeddings.weight"])
        words = graph.node("Gather", [table, ids], "words")
    else:
        words = _unpacked(build, packed, ids)
    segment = weights["embeddings.token_type_embeddings.weight"][0]
    places = weights["embeddings.position_embeddings.weight"] + segment
    positions = build.stored("position_embeddings", places)
    shape = graph.node("Shape", [ids], "shape")
    length = graph.node("Slice", [shape, "axis1", "axis2", "axis0"], "length")
    used = graph.node("Slice", [positions, "axis0", length, "axis0"], "positions")
    summed = graph.node("Add", [words, used], "words_and_positions")
    norm = build.norm_parameters("embeddings.LayerNorm")
    return graph.node("LayerNormalization", [summed, *norm], "embedded", axis=-1, epsilon=EPSILON)


def _unpacked(build: _GraphBuilder, packed: PackedRows, ids: str) -> str:
    """The words' rows in float32: (high half or low half of the byte - 8) times the scale of the block."""
    graph = build.graph
    halves = graph.stored(build.store.add("word_halves", packed.halves))
    scales = graph.stored(build.store.add("word_scales", packed.scales[:, :, None]))
    for name, value in (("sixteen", 16.0), ("sixteenth", 1 / 16), ("eight", 8.0)):
        graph.constant(name, np.array(value, np.float32))
    graph.constant("flat", np.array([0, 0, -1], np.int64))
    taken = graph.node("Gather", [halves, ids], "words_taken")
    both = graph.node("Cast", [taken], "words_both", to=int(ElementType.FLOAT))
    divided = graph.node("Mul", [both, "sixteenth"], "words_divided")
    high = graph.node("Floor", [divided], "words_high")
    shifted = graph.node("Mul", [high, "sixteen"], "words_shifted")
    low = graph.node("Sub", [both, shifted], "words_low")
    values = graph.node("Concat", [low, high], "words_values", axis=-1)
    centred = graph.node("Sub", [values, "eight"], "words_centred")
    taken_scales = graph.node("Gather", [scales, ids], "words_scales")
    wide = graph.node("Cast", [taken_scales], "words_scales_wide", to=int(ElementType.FLOAT))
    scaled = graph.node("Mul", [centred, wide], "words_scaled")
    return graph.node("Reshape", [scaled, "flat"], "words")


def _layer(build: _GraphBuilder, value: str, mask: str, layer: str) -> str:
    attended = _attention(build, value, mask, layer)
    output = f"{layer}.attention.output"
    attended = build.dense(attended, f"{output}.dense.weight", f"{output}.projected")
    value = build.add_and_normalise(
        attended, value, f"{output}.dense.bias", f"{output}.LayerNorm", f"{output}.normalised"
    )
    inner = f"{layer}.intermediate"
    hidden = build.dense(value, f"{inner}.dense.weight", f"{inner}.projected")
    bias = build.graph.constant(f"{inner}.dense.bias", build.weights[f"{inner}.dense.bias"])
    hidden = build.graph.node("BiasGelu", [hidden, bias], f"{inner}.gelu", domain=MICROSOFT)
    output = f"{layer}.output"
    hidden = build.dense(hidden, f"{output}.dense.weight", f"{output}.projected")
    return build.add_and_normalise(
        hidden, value, f"{output}.dense.bias", f"{output}.LayerNorm", f"{output}.normalised"
    )


def _attention(build: _GraphBuilder, value: str, mask: str, layer: str) -> str:
    """Self-attention; one matrix holds the weights of query, key and value."""
    graph, weights = build.graph, build.weights
    parts = [f"{layer}.attention.self.{part}" for part in ("query", "key", "value")]
    matrix = np.concatenate([weights[f"{part}.weight"].T for part in parts], axis=1)
    name = f"{layer}.attention"
    bias = np.concatenate([weights[f"{part}.bias"] for part in parts])
    graph.constant(f"{name}.bias", bias)
    if build.precision is Precision.FP32:
        inputs = [value, build.stored(f"{name}.weight", matrix), f"{name}.bias", mask]
        return graph.node("Attention", inputs, name, domain=MICROSOFT, num_heads=HEADS)
    return _quantised_attention(build, value, mask, name, matrix)


def _quantised_attention(
    build: _GraphBuilder, value: str, mask: str, name: str, matrix: Floats
) -> str:
    graph = build.graph
    scale, zero = f"{name}.input_scale", f"{name}.input_zero"
    outputs = [scale, zero]
    quantised_input = graph.node(
        "DynamicQuantizeLinear", [value], f"{name}.input", more_outputs=outputs
    )
    weight, scales = build.quantised(f"{name}.weight", matrix)
    zeros = graph.constant(f"{name}.zeros", np.zeros(matrix.shape[1], np.int8))
    inputs = [quantised_input, weight, f"{name}.bias", scale, scales, mask, zero, zeros]
    return graph.node("QAttention", inputs, name, domain=MICROSOFT, num_heads=HEADS)


def _pool(graph: Graph, value: str, mask: str) -> None:
    """The mean over the tokens that are not padding, scaled to unit length."""
    real = graph.node("Cast", [mask], "mask_float", to=int(ElementType.FLOAT))
    weight = graph.node("Unsqueeze", [real, "axis2"], "token_weight")
    kept = graph.node("Mul", [value, weight], "kept")
    total = graph.node("ReduceSum", [kept, "axis1"], "total", keepdims=0)
    count = graph.node("ReduceSum", [weight, "axis1"], "count", keepdims=0)
    mean = graph.node("Div", [total, count], "mean")
    graph.node("LpNormalization", [mean], OUTPUT, axis=1, p=2)
