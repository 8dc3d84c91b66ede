"""Numpy arrays as parameters: a search sends hundreds of chunk_nos to Postgres as one buffer instead of number by number."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from psycopg.abc import AdaptContext
from psycopg.adapt import Dumper
from psycopg.postgres import types
from psycopg.pq import Format
from typing_extensions import override

BIGINT: Final = types["int8"]
HEADER: Final = np.dtype(">i4")
ITEM: Final = np.dtype([("length", ">i4"), ("value", ">i8")])
ITEM_BYTES: Final = 8


class BigintArrayDumper(Dumper):
    """A vector of integers as ``bigint[]``, in Postgres's binary format of arrays (``array_send``)."""

    format = Format.BINARY
    oid = BIGINT.array_oid

    @override
    def dump(self, obj: NDArray[np.integer]) -> bytes:
        if obj.ndim != 1 or obj.dtype.kind not in "iu":
            raise TypeError(
                f"expected a vector of integers, got {obj.dtype} of {obj.ndim} dimensions"
            )
        items = np.empty(len(obj), ITEM)
        items["length"] = ITEM_BYTES
        items["value"] = obj
        # Dimensions, whether one is NULL, the type of the items, their number, the first one's index.
        empty = not len(obj)
        header = [0, 0, BIGINT.oid] if empty else [1, 0, BIGINT.oid, len(obj), 1]
        return np.array(header, HEADER).tobytes() + items.tobytes()


def register(context: AdaptContext) -> None:
    """Let ``context`` send numpy vectors of integers."""
    context.adapters.register_dumper(np.ndarray, BigintArrayDumper)
