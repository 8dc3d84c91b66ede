"""Writes ONNX models: protobuf messages and a graph builder.

Field numbers are those of ``onnx.proto3``. Large tensors go into a separate file; the model stores their
offsets, and the runtime maps the file instead of copying it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

IR_VERSION: Final = 8
OPSET: Final = 17
MICROSOFT: Final = "com.microsoft"
"""Domain of the runtime's fused operators."""
_EXTERNAL: Final = 1

Attribute = int | float | Sequence[int]


class ElementType(IntEnum):
    FLOAT = 1
    UINT8 = 2
    INT8 = 3
    INT32 = 6
    INT64 = 7
    FLOAT16 = 10

    @classmethod
    def of(cls, dtype: np.dtype[Any]) -> ElementType:
        return _ELEMENT_TYPES[dtype.newbyteorder("<")]


_ELEMENT_TYPES: Final = {
    np.dtype("<f4"): ElementType.FLOAT,
    np.dtype("<f2"): ElementType.FLOAT16,
    np.dtype("u1"): ElementType.UINT8,
    np.dtype("i1"): ElementType.INT8,
    np.dtype("<i4"): ElementType.INT32,
    np.dtype("<i8"): ElementType.INT64,
}


class _OnnxWireType(IntEnum):
    VARINT = 0
    LENGTH = 2
    FIXED32 = 5


class _AttributeType(IntEnum):
    FLOAT = 1
    INT = 2
    INTS = 7


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # negative numbers as 64-bit two's complement
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _tag(number: int, wire: _OnnxWireType) -> bytes:
    return _varint(number << 3 | wire)


def integer(number: int, value: int) -> bytes:
    return _tag(number, _OnnxWireType.VARINT) + _varint(value)


def real(number: int, value: float) -> bytes:
    return _tag(number, _OnnxWireType.FIXED32) + struct.pack("<f", value)


def message(number: int, payload: bytes) -> bytes:
    return _tag(number, _OnnxWireType.LENGTH) + _varint(len(payload)) + payload


def text(number: int, value: str) -> bytes:
    return message(number, value.encode())


def each(number: int, values: Iterable[bytes]) -> bytes:
    return b"".join(message(number, value) for value in values)


def _attribute(name: str, value: Attribute) -> bytes:
    if isinstance(value, float):
        return text(1, name) + real(2, value) + integer(20, _AttributeType.FLOAT)
    if isinstance(value, int):
        return text(1, name) + integer(3, value) + integer(20, _AttributeType.INT)
    return text(1, name) + b"".join(integer(8, v) for v in value) + integer(20, _AttributeType.INTS)


def _tensor(name: str, shape: Sequence[int], kind: ElementType) -> bytes:
    return b"".join(integer(1, size) for size in shape) + integer(2, kind) + text(8, name)


def _value_info(name: str, kind: ElementType, dims: Sequence[int | str]) -> bytes:
    """Type of an input or output; a named dimension has any size."""
    shape = each(1, (text(2, d) if isinstance(d, str) else integer(1, d) for d in dims))
    return text(1, name) + message(2, message(1, integer(1, kind) + message(2, shape)))


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in the file of weights."""

    name: str
    kind: ElementType
    shape: tuple[int, ...]
    file: str
    offset: int
    length: int

    def encoded(self) -> bytes:
        place = (
            ("location", self.file),
            ("offset", str(self.offset)),
            ("length", str(self.length)),
        )
        entries = each(13, (text(1, key) + text(2, value) for key, value in place))
        return _tensor(self.name, self.shape, self.kind) + entries + integer(14, _EXTERNAL)


@dataclass(slots=True)
class Graph:
    """An ONNX graph under construction. Values are referenced by name; a node's first output has the node's name."""

    name: str
    _nodes: list[bytes] = field(default_factory=list)
    _tensors: list[bytes] = field(default_factory=list)
    _inputs: list[bytes] = field(default_factory=list)
    _outputs: list[bytes] = field(default_factory=list)

    def input(self, name: str, kind: ElementType, dims: Sequence[int | str]) -> str:
        self._inputs.append(_value_info(name, kind, dims))
        return name

    def output(self, name: str, kind: ElementType, dims: Sequence[int | str]) -> None:
        self._outputs.append(_value_info(name, kind, dims))

    def constant(self, name: str, value: NDArray[Any]) -> str:
        """Add a small tensor to the model file itself."""
        little = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
        head = _tensor(name, little.shape, ElementType.of(little.dtype))
        self._tensors.append(head + message(9, little.tobytes()))
        return name

    def stored(self, tensor: StoredTensor) -> str:
        self._tensors.append(tensor.encoded())
        return tensor.name

    def node(
        self,
        operator: str,
        inputs: Sequence[str],
        name: str,
        *,
        domain: str = "",
        more_outputs: Sequence[str] = (),
        **attributes: Attribute,
    ) -> str:
        """Append an operator; an empty string in ``inputs`` omits an optional input."""
        self._nodes.append(
            b"".join(text(1, value) for value in inputs)
            + b"".join(text(2, value) for value in (name, *more_outputs))
            + text(3, name)
            + text(4, operator)
            + each(5, (_attribute(key, value) for key, value in attributes.items()))
            + (text(7, domain) if domain else b"")
        )
        return name

    def model(self) -> bytes:
        """The finished model file."""
        graph = (
            each(1, self._nodes)
            + text(2, self.name)
            + each(5, self._tensors)
            + each(11, self._inputs)
            + each(12, self._outputs)
        )
        opsets = (text(1, domain) + integer(2, n) for domain, n in (("", OPSET), (MICROSOFT, 1)))
        head = integer(1, IR_VERSION) + text(2, "latent-containers")
        return head + message(7, graph) + each(8, opsets)
