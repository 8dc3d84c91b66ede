"""Points as they travel and are stored: columns of equal length in one body of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latent_core.vectors.edge.protocol import ID_BYTES, Buffer, cut

_NUMBER_BYTES = 8
POINT_HEAD_BYTES = 2 * ID_BYTES + 2 * _NUMBER_BYTES
"""Of a point in a body, before its vector."""


@dataclass(frozen=True, slots=True)
class PointBatch:
    """Points as parallel columns; ids have 16 bytes."""

    ids: Sequence[bytes]
    doc_ids: Sequence[bytes]
    generations: NDArray[np.int64]
    chunk_nos: NDArray[np.int64]
    vectors: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def decode(cls, body: Buffer, n: int, dims: int) -> PointBatch:
        """From n ids, n document ids, n generations, n chunk_nos (int64), n vectors (float32)."""
        view = memoryview(body)
        ids, docs, generations, chunk_nos, vectors = _split(view, n)
        return cls(
            ids=cut(ids.tobytes()),
            doc_ids=cut(docs.tobytes()),
            generations=np.frombuffer(generations, np.int64),
            chunk_nos=np.frombuffer(chunk_nos, np.int64),
            vectors=np.frombuffer(vectors, np.float32).reshape(n, dims),
        )

    def encode(self) -> list[Buffer]:
        """The parts of a body that ``decode`` reads."""
        columns = (self.generations, self.chunk_nos, self.vectors)
        numbers = [np.ascontiguousarray(column).data for column in columns]
        return [b"".join(self.ids), b"".join(self.doc_ids), *numbers]


def _split(view: memoryview, n: int) -> list[memoryview]:
    sizes = (ID_BYTES, ID_BYTES, _NUMBER_BYTES, _NUMBER_BYTES)
    parts, start = [], 0
    for size in sizes:
        parts.append(view[start : start + size * n])
        start += size * n
    return [*parts, view[start:]]
