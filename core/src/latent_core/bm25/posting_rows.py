"""Rows of postings in Postgres' binary form, as COPY takes them: a dozen a chunk, too many for the driver, which looks
up the type of every field, and for a loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from latent_core.bm25.packing import PackedTerms
from latent_core.db.copying import BINARY_END, BINARY_HEAD

_FIELDS: Final = (6).to_bytes(2, "big")
_LENGTH_BYTES: Final = 4
_NUMBER_BYTES: Final = 8
_BYTES_AT_ONCE: Final = 256 * 1024

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PostingBlock:
    """Rows of distinct terms, all of one new block, whose number is written into them once it is known."""

    data: Bytes
    places: Numbers
    """Where each row has the block's number."""

    @property
    def rows(self) -> int:
        return len(self.places)

    @classmethod
    def of(cls, container_id: str, packed: PackedTerms) -> Self:
        """Field after field, each of all rows at once."""
        terms = [term.encode() for term in packed.terms]
        widths = np.array([len(term) for term in terms], np.int64)
        ends = np.array([0, *packed.ends], np.int64)
        postings = ends[1:] - ends[:-1]
        named = container_id.encode()
        head = _FIELDS + len(named).to_bytes(_LENGTH_BYTES, "big") + named
        fields: tuple[tuple[Numbers, bytes], ...] = (
            (widths, b"".join(terms)),
            (np.full(len(terms), _NUMBER_BYTES, np.int64), bytes(_NUMBER_BYTES * len(terms))),
            (4 * postings, packed.whole.chunk_nos),
            (postings, packed.whole.tfs),
            (2 * postings, packed.whole.lens),
        )
        sizes = sum((size + _LENGTH_BYTES for size, _ in fields), np.full(len(terms), len(head)))
        at = len(BINARY_HEAD) + np.cumsum(sizes) - sizes
        data = np.empty(len(BINARY_HEAD) + int(sizes.sum()) + len(BINARY_END), np.uint8)
        data[: len(BINARY_HEAD)] = _bytes(BINARY_HEAD)
        data[-len(BINARY_END) :] = _bytes(BINARY_END)
        data[at[:, None] + np.arange(len(head))] = _bytes(head)
        at += len(head)
        number_at = at + _LENGTH_BYTES + widths + _LENGTH_BYTES
        for size, values in fields:
            data[at[:, None] + np.arange(_LENGTH_BYTES)] = _lengths(size)
            at += _LENGTH_BYTES
            _fill(data, at, size, values)
            at += size
        return cls(data, number_at)

    def numbered(self, number: int) -> memoryview:
        """The rows with this number, and what COPY wants before and after them."""
        self.data[self.places[:, None] + np.arange(_NUMBER_BYTES)] = _bytes(
            number.to_bytes(_NUMBER_BYTES, "big")
        )
        return self.data.data


def _bytes(data: bytes) -> Bytes:
    return np.frombuffer(data, np.uint8)


def _lengths(sizes: Numbers) -> Bytes:
    return sizes.astype(">u4").view(np.uint8).reshape(-1, _LENGTH_BYTES)


def _fill(data: Bytes, starts: Numbers, sizes: Numbers, values: bytes) -> None:
    """Put values that are as long as ``sizes`` to their ``starts``; some at a time, since each byte has a place."""
    parts = 1 + len(values) // _BYTES_AT_ONCE
    left = _bytes(values)
    for start, size in zip(
        np.array_split(starts, parts), np.array_split(sizes, parts), strict=True
    ):
        total = int(size.sum())
        places = np.repeat(start - np.cumsum(size) + size, size) + np.arange(total)
        data[places], left = left[:total], left[total:]
