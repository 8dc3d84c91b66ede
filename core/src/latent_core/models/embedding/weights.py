"""Weights: read from a safetensors file, quantised, and packed into one file that the runtime maps."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from latent_core.domain.errors import Invalid
from latent_core.models.embedding.onnx_format import ElementType, StoredTensor

PAGE: Final = 4096  # tensors begin at a page, so that each can be mapped on its own
_INT8_MAX: Final = 127
_SMALLEST: Final = np.finfo(np.float32).tiny  # a column of zeros has a scale as well

Floats = NDArray[np.float32]


def read_safetensors(path: Path) -> Mapping[str, Floats]:
    """The float32 tensors of a safetensors file, mapped, not read.

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
    """Symmetric int8 with one scale a column: ``matrix ≈ values * scales``."""
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
