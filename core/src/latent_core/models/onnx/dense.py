"""The Dense layers of sentence-transformers: a matrix, an offset and an activation after pooling."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from latent_core.domain.errors import Invalid
from latent_core.models.onnx.folder import Activation, DenseLayer

MAX_BYTES: Final = 256 * 1024 * 1024
_MAX_HEADER: Final = 1024 * 1024
_TYPES: Final = {"F32": ("<f4", 4), "F16": ("<f2", 2), "BF16": ("<u2", 2)}

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class LoadedLayer:
    weight: Floats
    """(out, in)"""
    bias: Floats
    activation: Activation

    def apply(self, rows: Floats) -> Floats:
        out: Floats = rows @ self.weight.T + self.bias
        if self.activation is Activation.TANH:
            return np.asarray(np.tanh(out), np.float32)
        if self.activation is Activation.RELU:
            return np.asarray(np.maximum(out, np.float32(0)), np.float32)
        return out


def load_layer(folder: Path, layer: DenseLayer) -> LoadedLayer:
    tensors = read_tensors(folder / layer.file, layer.file)
    weight = tensors.get("linear.weight")
    if weight is None or weight.ndim != 2 or weight.shape[0] != layer.dims:
        raise Invalid(f"{layer.file} has no linear.weight with {layer.dims} rows")
    bias = tensors.get("linear.bias", np.zeros(layer.dims, np.float32))
    if bias.shape != (layer.dims,):
        raise Invalid(f"{layer.file} has a linear.bias of another width than linear.weight")
    return LoadedLayer(weight, bias, layer.activation)


def read_tensors(path: Path, name: str) -> Mapping[str, Floats]:
    """The tensors of a small safetensors file, as float32. ``Invalid`` says what is wrong with it.

    The file is a little-endian uint64 length, that many bytes of JSON, then the data.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise Invalid(f"{name} is larger than {MAX_BYTES} bytes")
        raw = path.read_bytes()
        (length,) = struct.unpack("<Q", raw[:8])
        if length > _MAX_HEADER:
            raise ValueError("its header is too long")
        header = json.loads(raw[8 : 8 + length])
        data = raw[8 + length :]
        return {key: _tensor(data, entry) for key, entry in header.items() if key != "__metadata__"}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as exc:
        raise Invalid(f"{name} cannot be read as safetensors: {exc}") from exc


def _tensor(data: bytes, entry: Mapping[str, Any]) -> Floats:
    if entry["dtype"] not in _TYPES:
        raise ValueError(f"the type {entry['dtype']} is not supported")
    kind, width = _TYPES[entry["dtype"]]
    start, end = entry["data_offsets"]
    shape = tuple(entry["shape"])
    if not 0 <= start <= end <= len(data) or end - start != width * int(
        np.prod(shape, dtype=object)
    ):
        raise ValueError("a tensor is outside of the file")
    values = np.frombuffer(data[start:end], kind).reshape(shape)
    if entry["dtype"] == "BF16":
        return np.asarray(values.astype("<u4") << 16).view("<f4").astype(np.float32)
    return values.astype(np.float32)
