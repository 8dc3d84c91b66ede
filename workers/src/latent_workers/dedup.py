"""Finds near-duplicate chunks, and which chunk repeats which.

A comparison of every vector with all others would keep the vector engine busy for many minutes per hundred thousand
chunks. A signature of 256 bits selects the few pairs that are worth comparing: each bit is the side of a random
plane on which the vector lies, and two vectors differ in a bit with probability angle / pi (Charikar 2002). The
comparison itself is exact.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from latent_core.db.documents.duplicates import SIGNATURE_BYTES, Signatures
from latent_core.domain.vector_types import Matrix, Vector

BITS: Final = 8 * SIGNATURE_BYTES
DEVIATIONS: Final = 4.0
"""Standard deviations: of pairs exactly at the threshold, fewer than one in ten thousand differs in more bits than
allowed."""
MAX_COMPARED: Final = 128
"""A chunk is compared with at most this many others, the most similar signatures first."""
ROUNDING: Final = 1e-5
"""Rounding error of the cosine of equal vectors."""
_BYTES_PER_NUMBER: Final = 4


@lru_cache(maxsize=8)
def _planes(dims: int) -> Matrix:
    """Normals of ``BITS`` planes: (dims, BITS). The same on every machine and with every numpy release."""
    seed = f"latent planes {dims}".encode()
    drawn = hashlib.shake_128(seed).digest(dims * BITS * _BYTES_PER_NUMBER)
    # A sum of uniform numbers is normal enough, so that no direction is preferred.
    numbers = np.frombuffer(drawn, dtype=np.uint8).reshape(dims, BITS, _BYTES_PER_NUMBER)
    sums = numbers.sum(axis=2, dtype=np.float32)
    return np.asarray(sums - 127.5 * _BYTES_PER_NUMBER, dtype=np.float32)


def sign(vectors: Matrix) -> NDArray[np.uint8]:
    """Signatures of vectors, one row each."""
    return np.packbits(vectors @ _planes(vectors.shape[1]) > 0, axis=1)


def words(signatures: NDArray[np.uint8]) -> NDArray[np.uint64]:
    return np.ascontiguousarray(signatures).view(np.uint64)


def bits_allowed(threshold: float) -> int:
    """The number of bits in which two signatures may differ if the cosine reaches ``threshold``."""
    share = math.acos(max(-1.0, min(1.0, threshold))) / math.pi
    spread = math.sqrt(BITS * share * (1 - share))
    return min(BITS, math.ceil(BITS * share + DEVIATIONS * spread))


class NeighbourFinder:
    """Finds the chunks to compare with, among judged chunks and the current ones."""

    def __init__(self, known: Signatures, threshold: float) -> None:
        order = np.argsort(known.chunk_nos, kind="stable")
        self._chunk_nos = known.chunk_nos[order]
        self._originals = known.originals[order]
        self._words = [np.ascontiguousarray(column) for column in known.bits[order].T]
        self._allowed = bits_allowed(threshold)

    def of_each(
        self, chunk_nos: Sequence[int], signatures: NDArray[np.uint64]
    ) -> dict[int, list[int]]:
        return {
            o: self.of(o, signature) for o, signature in zip(chunk_nos, signatures, strict=True)
        }

    def of(self, chunk_no: int, signature: NDArray[np.uint64]) -> list[int]:
        """chunk_nos with a similar signature: originals before ``chunk_no``, and later chunks that may repeat it."""
        if not len(self._chunk_nos):
            return []
        differing = sum(
            np.bitwise_count(column ^ word).astype(np.uint16)
            for column, word in zip(self._words, signature, strict=True)
        )
        near = np.flatnonzero(differing <= self._allowed)
        chunk_nos, originals = self._chunk_nos[near], self._originals[near]
        decisive = (originals < 0) | ((chunk_nos > chunk_no) & (originals > chunk_no))
        near = near[decisive & (chunk_nos != chunk_no)]
        likeliest = np.argsort(np.asarray(differing)[near], kind="stable")[:MAX_COMPARED]
        return [int(found) for found in self._chunk_nos[near[likeliest]]]


def alike(one: Iterable[Vector], other: Iterable[Vector], threshold: float) -> bool:
    """Whether two chunks have the same number of windows, and each pair of windows reaches ``threshold``."""
    pairs = list(zip(list(one), list(other), strict=True))
    return bool(pairs) and all(cosine(a, b) >= threshold - ROUNDING for a, b in pairs)


def cosine(one: Vector, other: Vector) -> float:
    lengths = float(np.linalg.norm(one)) * float(np.linalg.norm(other))
    return float(one @ other) / lengths if lengths else 0.0


def judge(near: Mapping[int, Collection[int]], originals: Mapping[int, int]) -> dict[int, int]:
    """New verdicts: a chunk repeats the earliest similar original; a chunk that repeats nothing is an original.

    ``near`` maps each chunk to the visible chunks that are similar, ``originals`` has the verdicts so far. An
    original takes over similar later chunks from later originals. So the result does not depend on order and
    batches, if each chunk is judged again when its original disappears.
    """
    verdicts = {o: original for o, original in originals.items() if o not in near}
    found: dict[int, int] = {}
    for chunk_no in sorted(near):
        earlier = [one for one in near[chunk_no] if one < chunk_no and one not in verdicts]
        if earlier:
            verdicts[chunk_no] = found[chunk_no] = min(earlier)
            continue
        for later in near[chunk_no]:
            if later > chunk_no and verdicts.get(later, later) > chunk_no:
                verdicts[later] = found[later] = chunk_no
    return found
