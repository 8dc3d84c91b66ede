"""How postings are packed: uint32 ord, uint8 term frequency (capped), uint16 length (capped), little-endian."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from latent_core.domain.errors import TooLarge

MAX_ORD: Final = 2**32 - 1
MAX_TF: Final = 255
MAX_LENGTH: Final = 65_535
ROW_POSTINGS: Final = 65_536
"""A row holds at most so many."""


@dataclass(frozen=True, slots=True)
class ChunkTerms:
    """A chunk as the keyword index knows it."""

    ord: int
    length: int
    """Terms counted by BM25 (``Analysed.length``)."""
    tfs: Mapping[str, int]
    language: str | None = None
    """The language it was analysed in: tells how common its stop words are, which no posting shows."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Postings of one term; the same count in each."""

    ords: bytes
    tfs: bytes
    lens: bytes

    def __len__(self) -> int:
        return len(self.tfs)


@dataclass(frozen=True, slots=True)
class Postings:
    """Packed postings, opened: arrays of one length."""

    ords: NDArray[np.uint32]
    tfs: NDArray[np.uint8]
    lens: NDArray[np.uint16]

    def __len__(self) -> int:
        return len(self.tfs)

    def only(self, mask: NDArray[np.bool_]) -> Postings:
        return Postings(self.ords[mask], self.tfs[mask], self.lens[mask])

    def pack(self) -> Packed:
        return Packed(
            self.ords.astype("<u4", copy=False).tobytes(),
            self.tfs.tobytes(),
            self.lens.astype("<u2", copy=False).tobytes(),
        )


def unpack(rows: Sequence[Packed]) -> Postings:
    """The postings of ``rows``, one after the other."""
    return Postings(
        unpack_ords([row.ords for row in rows]),
        np.frombuffer(b"".join([row.tfs for row in rows]), np.uint8),
        np.frombuffer(b"".join([row.lens for row in rows]), "<u2"),
    )


def unpack_ords(packed: Sequence[bytes]) -> NDArray[np.uint32]:
    return np.frombuffer(b"".join(packed), "<u4")


def pack_ords(ords: Sequence[int]) -> bytes:
    if ords and not 0 <= min(ords) <= max(ords) <= MAX_ORD:
        raise TooLarge(
            f"a container can number {MAX_ORD + 1} chunks in its life, and this one has: "
            "export it and import it again"
        )
    return struct.pack(f"<{len(ords)}I", *ords)


def pack(entries: Sequence[ChunkTerms]) -> Iterator[tuple[str, Packed]]:
    """(term, postings) of at most ``ROW_POSTINGS`` chunks, in byte order of the terms."""
    by_term: dict[str, tuple[bytearray, bytearray, bytearray]] = {}
    for entry in entries:
        ord_ = pack_ords((entry.ord,))
        length = min(entry.length, MAX_LENGTH).to_bytes(2, "little")
        for term, tf in entry.tfs.items():
            found = by_term.get(term)
            if found is None:
                found = by_term[term] = (bytearray(), bytearray(), bytearray())
            found[0].extend(ord_)
            found[1].append(min(tf, MAX_TF))
            found[2].extend(length)
    # Python orders strings by code point, which is the order of UTF-8 bytes: COLLATE "C".
    for term in sorted(by_term):
        yield term, Packed(*map(bytes, by_term[term]))
