"""How postings are packed: uint32 chunk_no, uint8 term frequency (capped), uint16 length (capped), little-endian."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from latent_core.domain.errors import TooLarge

MAX_CHUNK_NO: Final = 2**32 - 1
MAX_TF: Final = 255
MAX_LENGTH: Final = 65_535
_BETWEEN: Final = "\n"
"""Stands in no term."""
ROW_POSTINGS: Final = 65_536
"""A row holds at most so many."""


class Tfs(Mapping[str, int]):
    """Terms and how often a chunk says each, at most ``MAX_TF`` times. A book has tens of thousands of chunks
    that wait for their publication: a dict, or the places of each term, would take ten times their text."""

    __slots__ = ("_counts", "_terms")

    def __init__(self, tfs: Mapping[str, int]) -> None:
        self._terms = _BETWEEN.join(tfs)
        self._counts = bytes(min(count, MAX_TF) for count in tfs.values())

    def _as_dict(self) -> dict[str, int]:
        return dict(zip(self, self._counts, strict=True))

    @override
    def __getitem__(self, term: str) -> int:
        return self._as_dict()[term]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._terms.split(_BETWEEN) if self._counts else ())

    @override
    def __len__(self) -> int:
        return len(self._counts)

    @override
    def values(self) -> ValuesView[int]:
        return self._as_dict().values()

    @override
    def items(self) -> ItemsView[str, int]:
        return self._as_dict().items()


@dataclass(frozen=True, slots=True)
class ChunkTerms:
    """A chunk as the keyword index knows it."""

    chunk_no: int
    length: int
    """Terms counted by BM25 (``Analysed.length``)."""
    tfs: Mapping[str, int]
    language: str | None = None
    """The language it was analysed in: tells how common its stop words are, which no posting shows."""


@dataclass(frozen=True, slots=True)
class TermCounts:
    """Terms of several chunks with their counts, the terms of one chunk after those of the other."""

    terms: Sequence[str]
    """Every term once."""
    places: NDArray[np.int32]
    """The place among ``terms`` of each term of each chunk."""
    tfs: NDArray[np.int64]
    sizes: NDArray[np.int64]
    """How many terms each chunk has."""

    def only(self, chunks: NDArray[np.int64]) -> TermCounts:
        """Those of chunks at these places, in this order."""
        ends = np.cumsum(self.sizes)[chunks]
        sizes = self.sizes[chunks]
        firsts = np.repeat(ends - np.cumsum(sizes), sizes)
        indices = firsts + np.arange(len(firsts))
        used, places = np.unique(self.places[indices], return_inverse=True)
        terms = [self.terms[place] for place in used.tolist()]
        return TermCounts(terms, places.astype(np.int32), self.tfs[indices], sizes)


def counted(terms: Iterable[str], tfs: Iterable[int], sizes: Sequence[int]) -> TermCounts:
    """Terms and counts of chunks that have ``sizes`` of them; none is kept twice."""
    numbers = _numbers()
    places = np.fromiter(map(numbers.__getitem__, terms), np.int32)
    return TermCounts(list(numbers), places, np.fromiter(tfs, np.int64), np.array(sizes, np.int64))


def joined(parts: Sequence[TermCounts]) -> TermCounts:
    """Chunks of several parts as one."""
    numbers = _numbers()
    places = [
        np.fromiter(map(numbers.__getitem__, part.terms), np.int32, len(part.terms))[part.places]
        for part in parts
    ]
    none = np.empty(0, np.int64)
    return TermCounts(
        list(numbers),
        np.concatenate([none.astype(np.int32), *places]),
        np.concatenate([none, *(part.tfs for part in parts)]),
        np.concatenate([none, *(part.sizes for part in parts)]),
    )


def _numbers() -> defaultdict[str, int]:
    """A term that is new takes the next number."""
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__
    return numbers


@dataclass(frozen=True, slots=True)
class PackedPostings:
    """Postings of one term; the same count in each."""

    chunk_nos: bytes
    tfs: bytes
    lens: bytes

    def __len__(self) -> int:
        return len(self.tfs)


@dataclass(frozen=True, slots=True)
class Postings:
    """Packed postings, opened: arrays of one length."""

    chunk_nos: NDArray[np.uint32]
    tfs: NDArray[np.uint8]
    lens: NDArray[np.uint16]

    def __len__(self) -> int:
        return len(self.tfs)

    def only(self, mask: NDArray[np.bool_] | NDArray[np.int64]) -> Postings:
        return Postings(self.chunk_nos[mask], self.tfs[mask], self.lens[mask])

    def pack(self) -> PackedPostings:
        return PackedPostings(
            self.chunk_nos.astype("<u4", copy=False).tobytes(),
            self.tfs.tobytes(),
            self.lens.astype("<u2", copy=False).tobytes(),
        )


def unpack(rows: Sequence[PackedPostings]) -> Postings:
    """The postings of ``rows``, one after the other."""
    return Postings(
        unpack_chunk_nos([row.chunk_nos for row in rows]),
        np.frombuffer(b"".join([row.tfs for row in rows]), np.uint8),
        np.frombuffer(b"".join([row.lens for row in rows]), "<u2"),
    )


def as_one_term(rows: Sequence[PackedPostings]) -> PackedPostings:
    """The postings of several terms as those of one: a chunk once, with the sum of their frequencies."""
    found = unpack(rows)
    chunk_nos, places, owners = np.unique(found.chunk_nos, return_index=True, return_inverse=True)
    tfs = np.minimum(np.bincount(owners, found.tfs, len(chunk_nos)), MAX_TF).astype(np.uint8)
    return Postings(chunk_nos, tfs, found.lens[places]).pack()


def unpack_chunk_nos(packed: Sequence[bytes]) -> NDArray[np.uint32]:
    return np.frombuffer(b"".join(packed), "<u4")


def pack_chunk_nos(chunk_nos: Sequence[int]) -> bytes:
    if chunk_nos and not 0 <= min(chunk_nos) <= max(chunk_nos) <= MAX_CHUNK_NO:
        raise TooLarge(
            f"a container can number {MAX_CHUNK_NO + 1} chunks in its life, and this one has: "
            "export it and import it again"
        )
    return struct.pack(f"<{len(chunk_nos)}I", *chunk_nos)


@dataclass(frozen=True, slots=True)
class KeywordColumns:
    """Chunks as the keyword index knows them, column by column: what thousands at once are packed from."""

    chunk_nos: Sequence[int]
    lengths: Sequence[int]
    languages: Sequence[str | None]
    counted: TermCounts

    def __len__(self) -> int:
        return len(self.chunk_nos)

    def only(self, places: Sequence[int]) -> KeywordColumns:
        """Those of chunks at these places, in this order."""
        return KeywordColumns(
            [self.chunk_nos[n] for n in places],
            [self.lengths[n] for n in places],
            [self.languages[n] for n in places],
            self.counted.only(np.array(places, np.int64)),
        )


def joined_columns(parts: Sequence[KeywordColumns]) -> KeywordColumns:
    """Chunks of several parts as one; the chunks of a part are newer than those of the parts before it."""
    return KeywordColumns(
        [number for part in parts for number in part.chunk_nos],
        [length for part in parts for length in part.lengths],
        [language for part in parts for language in part.languages],
        joined([part.counted for part in parts]),
    )


def columns_of(entries: Sequence[ChunkTerms]) -> KeywordColumns:
    found = counted(
        chain.from_iterable(entry.tfs for entry in entries),
        chain.from_iterable(entry.tfs.values() for entry in entries),
        [len(entry.tfs) for entry in entries],
    )
    return KeywordColumns(
        [entry.chunk_no for entry in entries],
        [entry.length for entry in entries],
        [entry.language for entry in entries],
        found,
    )


@dataclass(frozen=True, slots=True)
class PackedTerms:
    """Postings of many terms, one term after the other, in byte order of the terms."""

    terms: Sequence[str]
    ends: Sequence[int]
    """Of each term: how many postings there are to its last one."""
    whole: PackedPostings

    def __iter__(self) -> Iterator[tuple[str, PackedPostings]]:
        start, whole = 0, self.whole
        for term, end in zip(self.terms, self.ends, strict=True):
            chunk_nos, lens = whole.chunk_nos[4 * start : 4 * end], whole.lens[2 * start : 2 * end]
            yield term, PackedPostings(chunk_nos, whole.tfs[start:end], lens)
            start = end


def pack(entries: Sequence[ChunkTerms]) -> Iterator[tuple[str, PackedPostings]]:
    """(term, postings) of at most ``ROW_POSTINGS`` chunks, in byte order of the terms."""
    yield from pack_columns(columns_of(entries))


def pack_columns(columns: KeywordColumns) -> PackedTerms:
    """The same of columns."""
    chunk_nos = np.frombuffer(pack_chunk_nos(columns.chunk_nos), "<u4")
    terms, ranks = _ranked(columns.counted)
    # What tells two postings of a term apart is the place, so that a sort that is not stable keeps their order.
    keys = ranks.astype(np.uint64) << np.uint64(32) | np.arange(len(ranks), dtype=np.uint64)
    keys.sort()
    order = (keys & np.uint64(0xFFFF_FFFF)).astype(np.int64)
    owners = np.repeat(np.arange(len(chunk_nos), dtype=np.uint32), columns.counted.sizes)[order]
    lengths = np.minimum(np.array(columns.lengths, np.int64), MAX_LENGTH).astype(np.uint16)
    tfs = np.minimum(columns.counted.tfs, MAX_TF).astype(np.uint8)
    whole = Postings(chunk_nos[owners], tfs[order], lengths[owners]).pack()
    return PackedTerms(terms, np.cumsum(np.bincount(ranks)).tolist(), whole)


def _ranked(found: TermCounts) -> tuple[list[str], NDArray[np.int32]]:
    """The terms in order, and the place among them of each that a chunk has."""
    # Python orders strings by code point, which is the order of UTF-8 bytes: COLLATE "C".
    order = sorted(range(len(found.terms)), key=found.terms.__getitem__)
    ranks = np.empty(len(order), np.int32)
    ranks[order] = np.arange(len(order))
    return [found.terms[place] for place in order], ranks[found.places]
