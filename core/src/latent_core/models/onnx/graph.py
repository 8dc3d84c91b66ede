"""What an ONNX file declares, read from its protobuf bytes without loading it: inputs, outputs, operators, precision.

A file of a stranger is checked here before the runtime opens it: only standard operators and the runtime's own, and
external data inside its folder. Field numbers are those of ``onnx.proto3``. The file is mapped; weights are skipped.
"""

from __future__ import annotations

import math
import mmap
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Final

from latent_core.domain.errors import Invalid

MAX_BYTES: Final = 2**31
"""Of a protobuf message; larger models have external data."""
_MAX_FIELDS: Final = 400_000
"""Half a second. The graph of a model with 24 layers has 20,000 to 100,000: weights are one field each."""
_MAX_DEPTH: Final = 8
_MAX_RANK: Final = 64
"""Dimensions of a tensor of weights."""
_OPERATORS: Final = frozenset(
    {"", "ai.onnx", "ai.onnx.ml", "com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc"}
)
"""Domains of operators that the runtime carries."""
_QUANTISED: Final = (
    "QLinear",
    "QAttention",
    "QGemm",
    "DynamicQuantize",
    "MatMulInteger",
    "QuantizeLinear",
    "DequantizeLinear",
)
"""Begins of operators that only quantised graphs have, also those whose larger tensors are still floats."""
_LOW_BITS: Final = ("MatMulNBits", "MatMulBnb4", "GatherBlockQuantized")
_FLOAT, _UINT8, _INT8, _FLOAT16, _BFLOAT16, _UINT4, _INT4 = 1, 2, 3, 10, 16, 21, 22
_WIDTHS: Final = {
    _FLOAT: 4,
    _UINT8: 1,
    _INT8: 1,
    _FLOAT16: 2,
    _BFLOAT16: 2,
    _UINT4: 0.5,
    _INT4: 0.5,
}
"""Bytes of an element."""
_INTEGERS: Final = frozenset({_UINT8, _INT8, _UINT4, _INT4})


class ModelPrecision(StrEnum):
    """Of the larger part of the weights of a file."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"
    INT4 = "int4"


_OF_TYPE: Final = {
    _FLOAT: ModelPrecision.FP32,
    _FLOAT16: ModelPrecision.FP16,
    _BFLOAT16: ModelPrecision.BF16,
    _INT8: ModelPrecision.INT8,
    _UINT8: ModelPrecision.INT8,
    _UINT4: ModelPrecision.INT4,
    _INT4: ModelPrecision.INT4,
}


@dataclass(frozen=True, slots=True)
class GraphValue:
    """An input or output; a dimension of any size is None."""

    name: str
    dims: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class OnnxGraph:
    inputs: tuple[GraphValue, ...]
    outputs: tuple[GraphValue, ...]
    external: tuple[str, ...]
    """Files with weights, relative to the folder of the model file."""
    precision: ModelPrecision

    def output(self, name: str) -> GraphValue | None:
        return next((value for value in self.outputs if value.name == name), None)

    @property
    def input_names(self) -> frozenset[str]:
        return frozenset(value.name for value in self.inputs)


def read_graph(path: Path) -> OnnxGraph:
    """``Invalid`` names the file and what is wrong: not ONNX, a custom operator, data outside of the folder."""
    try:
        size = path.stat().st_size
        if not 0 < size <= MAX_BYTES:
            raise Invalid(f"{path.name} has {size} bytes: an ONNX file has 1 to {MAX_BYTES}")
        with path.open("rb") as file:
            # Unmapped with its last view.
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        found = _Reader(path.name)
        found.read_model(memoryview(data))
    except (OSError, ValueError, IndexError, UnicodeDecodeError) as exc:
        raise Invalid(f"{path.name} cannot be read as ONNX: {exc}") from exc
    return found.graph()


class _Reader:
    def __init__(self, name: str) -> None:
        self._name = name
        self._left = _MAX_FIELDS
        self._inputs: dict[str, GraphValue] = {}
        self._outputs: dict[str, GraphValue] = {}
        self._weights: set[str] = set()
        self._external: set[str] = set()
        self._bytes: defaultdict[int, float] = defaultdict(float)
        """By the type of their elements."""
        self._operators: set[tuple[str, str]] = set()
        """Domains and names."""
        self._functions: set[tuple[str, str]] = set()
        """Of the model itself, built from operators."""
        self._graphs = 0

    def graph(self) -> OnnxGraph:
        if self._graphs != 1 or not self._outputs:
            raise Invalid(f"{self._name} is not an ONNX file: it has no graph with an output")
        self._refuse_custom()
        # Old exports list weights among the inputs.
        inputs = tuple(v for name, v in self._inputs.items() if name not in self._weights)
        external = tuple(sorted(self._external))
        return OnnxGraph(inputs, tuple(self._outputs.values()), external, self._precision())

    def _precision(self) -> ModelPrecision:
        if any(name.startswith(_LOW_BITS) for _, name in self._operators):
            return ModelPrecision.INT4
        quantised = any(name.startswith(_QUANTISED) for _, name in self._operators)
        # Tables of words often stay floats, and may be the larger part.
        kinds = [kind for kind in self._bytes if kind in _INTEGERS or not quantised]
        majority = max(kinds, key=lambda kind: self._bytes[kind], default=_FLOAT)
        return ModelPrecision.INT8 if quantised and not kinds else _OF_TYPE[majority]

    def _refuse_custom(self) -> None:
        for domain, name in sorted(self._operators - self._functions):
            if domain not in _OPERATORS:
                raise Invalid(
                    f"{self._name} uses {name} of the domain {domain!r}, a custom operator: only standard operators"
                    " are run; export the model without it"
                )

    def read_model(self, view: memoryview) -> None:
        for number, value in self._fields(view):
            if number == 7 and isinstance(value, memoryview):
                self._graphs += 1
                self._read_graph(value, 0)
            elif number == 25 and isinstance(value, memoryview):
                self._read_function(value)

    def _read_function(self, view: memoryview) -> None:
        domain = name = ""
        for number, value in self._fields(view):
            if number == 1:
                name = _text(value)
            elif number == 10:
                domain = _text(value)
            elif number == 7 and isinstance(value, memoryview):
                self._read_node(value, 1)
        self._functions.add((domain, name))

    def _read_graph(self, view: memoryview, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise Invalid(f"{self._name} nests graphs more than {_MAX_DEPTH} deep")
        for number, value in self._fields(view):
            if not isinstance(value, memoryview):
                continue
            if number == 1:
                self._read_node(value, depth)
            elif number == 5:
                self._read_tensor(value)
            elif number == 15:
                self._read_sparse(value)
            elif number in (11, 12) and depth == 0:
                own = self._value(value)
                (self._inputs if number == 11 else self._outputs)[own.name] = own

    def _read_node(self, view: memoryview, depth: int) -> None:
        operator = domain = ""
        for number, value in self._fields(view):
            if number == 4:
                operator = _text(value)
            elif number == 7:
                domain = _text(value)
            elif number == 5 and isinstance(value, memoryview):
                self._read_attribute(value, depth)
        self._operators.add((domain, operator))

    def _read_attribute(self, view: memoryview, depth: int) -> None:
        for number, value in self._fields(view):
            if not isinstance(value, memoryview):
                continue
            if number in (6, 11):
                self._read_graph(value, depth + 1)
            elif number in (5, 10):
                self._read_tensor(value)
            elif number in (22, 23):
                self._read_sparse(value)

    def _read_sparse(self, view: memoryview) -> None:
        for number, value in self._fields(view):
            if number in (1, 2) and isinstance(value, memoryview):
                self._read_tensor(value)

    def _read_tensor(self, view: memoryview) -> None:
        elements, rank, kind = 1, 0, 0
        place: dict[str, str] = {}
        for number, value in self._fields(view):
            if number == 1:
                sizes = _integers(value)
                rank += len(sizes)
                if rank > _MAX_RANK:
                    raise ValueError(f"a tensor has more than {_MAX_RANK} dimensions")
                elements *= math.prod(sizes)
            elif number == 2 and isinstance(value, int):
                kind = value
            elif number == 8:
                self._weights.add(_text(value))
            elif number == 13 and isinstance(value, memoryview):
                entry = {n: _text(v) for n, v in self._fields(value)}
                place[entry.get(1, "")] = entry.get(2, "")
        if kind in _WIDTHS and elements > 0:
            self._bytes[kind] += elements * _WIDTHS[kind]
        if "location" in place:
            self._external.add(self._inside(place["location"]))

    def _inside(self, location: str) -> str:
        parts = PurePosixPath(location).parts
        leaves = location.startswith("/") or "\\" in location or ":" in location or ".." in parts
        if leaves or not parts or "\0" in location:
            raise Invalid(
                f"{self._name} keeps weights in {location!r}, which is outside of its folder"
            )
        return str(PurePosixPath(location))

    def _value(self, view: memoryview) -> GraphValue:
        name = ""
        dims: tuple[int | None, ...] = ()
        for number, value in self._fields(view):
            if number == 1:
                name = _text(value)
            elif number == 2 and isinstance(value, memoryview):
                dims = self._shape(value)
        return GraphValue(name, dims)

    def _shape(self, view: memoryview) -> tuple[int | None, ...]:
        """TypeProto > Tensor > TensorShapeProto > Dimension."""
        dims: list[int | None] = []
        for tensor in self._messages(view, 1):
            for shape in self._messages(tensor, 2):
                for dim in self._messages(shape, 1):
                    sizes = [v for n, v in self._fields(dim) if n == 1 and isinstance(v, int)]
                    dims.append(sizes[0] if sizes and sizes[0] > 0 else None)
        return tuple(dims)

    def _messages(self, view: memoryview, field_number: int) -> Iterator[memoryview]:
        return (v for n, v in self._fields(view) if n == field_number and isinstance(v, memoryview))

    def _fields(self, view: memoryview) -> Iterator[tuple[int, int | memoryview]]:
        at, end = 0, len(view)
        while at < end:
            self._left -= 1
            if self._left < 0:
                raise Invalid(
                    f"{self._name} has more than {_MAX_FIELDS} fields besides its weights: no encoder is so large;"
                    " export the model again"
                )
            key, at = _varint(view, at)
            number, wire = key >> 3, key & 7
            if wire == 0:
                value, at = _varint(view, at)
                yield number, value
                continue
            if wire == 2:
                length, at = _varint(view, at)
            elif wire in (1, 5):
                length = 8 if wire == 1 else 4
            else:
                raise ValueError(f"wire type {wire} is not of this format")
            if at + length > end:
                raise ValueError("it ends in the middle of a field")
            yield number, view[at : at + length]
            at += length


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def _integers(value: int | memoryview) -> list[int]:
    """A repeated number, packed or not."""
    if isinstance(value, int):
        return [value]
    numbers: list[int] = []
    at = 0
    while at < len(value):
        if len(numbers) > _MAX_RANK:
            break  # refused by the caller: a hostile file has millions
        number, at = _varint(value, at)
        numbers.append(number)
    return numbers


def _text(value: int | memoryview) -> str:
    return bytes(value).decode() if isinstance(value, memoryview) else ""
