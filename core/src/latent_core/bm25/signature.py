"""Trigram signatures: a text that holds a string has all bits of that string's signature set.

Three bits are set by hashes of every three characters that follow each other, case folded, so the same signature
serves searches with and without case. False positives are read and refused; there are no false negatives.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

SIZES: Final = (8192, 32768, 65536)
"""Bits of a signature, small enough for its text: about a quarter of them is set, so that one text in a hundred passes
for a string of three characters that it does not hold. A hash is cut to the size, so that one mask a size serves."""
CHARS: Final = (1500, 8000)
"""Texts longer than these take the next size."""
MIN_CHARS: Final = 3
"""A shorter string has no trigram and excludes nothing."""
TELLING: Final = 12
"""Bits that are asked for: of texts that do not hold the literals one in millions has so many by chance."""
TEXTS_AT_ONCE: Final = 32
"""Few enough that their trigrams stay in the processor's cache."""

_SECOND: Final = np.uint32(0x297A2D39)
_THIRD: Final = np.uint32(0x7FEB352D)
_FACTORS: Final = (np.uint32(0x9E3779B1), np.uint32(0x85EBCA77), np.uint32(0xC2B2AE3D))


def signature(text: str) -> str:
    """The bits of ``text``, as Postgres reads a bit string: ``x`` and hexadecimal digits."""
    return "x" + signatures([text])[0].hex()


def signatures(texts: Sequence[str]) -> list[bytes]:
    """The bits of many texts, in their order: at once they cost a fraction of what each alone does."""
    by_size: defaultdict[int, list[int]] = defaultdict(list)
    for number, text in enumerate(texts):
        by_size[SIZES[sum(len(text) > limit for limit in CHARS)]].append(number)
    found = [b""] * len(texts)
    for size, numbers in by_size.items():
        for start in range(0, len(numbers), TEXTS_AT_ONCE):
            some = numbers[start : start + TEXTS_AT_ONCE]
            bits = _bits([texts[number] for number in some], size)
            for number, row in zip(some, np.packbits(bits, axis=1), strict=True):
                found[number] = row.tobytes()
    return found


def places(literals: Sequence[str], size: int) -> list[int]:
    """Bits, counted from the left, that a text holding all of ``literals`` has set in a signature of ``size`` bits:
    as many as tell it apart, taken from all of the literals."""
    found = np.flatnonzero(_bits(literals, size).any(axis=0))
    step = max(1, len(found) // TELLING)
    return [int(place) for place in found[::step]]


def _bits(texts: Sequence[str], size: int) -> NDArray[np.uint8]:
    """A row a text, a byte a bit."""
    folded = [text.casefold() for text in texts]
    codes: NDArray[np.uint32] = np.frombuffer(
        "".join(folded).encode("utf-32-le"), dtype=np.dtype("<u4")
    ).astype(np.uint32, copy=False)
    bits = np.zeros((len(texts) + 1, size), np.uint8)
    if len(codes) >= MIN_CHARS:
        rows = _rows(folded, len(codes)) * size
        for hashes in _hashes(codes):
            bits.reshape(-1)[rows + (hashes & np.uint32(size - 1))] = 1
    return bits[:-1]


def _rows(texts: Sequence[str], chars: int) -> NDArray[np.int64]:
    """Of each trigram of the texts, one after the other, its text; the one after the last where it begins in one
    and ends in another."""
    lengths = [len(text) for text in texts]
    rows = np.repeat(np.arange(len(texts)), lengths)[: chars - MIN_CHARS + 1]
    ends = np.cumsum(lengths)
    across = np.concatenate([ends - 2, ends - 1])
    rows[across[(across >= 0) & (across < len(rows))]] = len(texts)
    return rows


def _hashes(codes: NDArray[np.uint32]) -> Iterator[NDArray[np.uint32]]:
    """Three of each trigram."""
    mixed: NDArray[np.uint32] = (
        codes[:-2] * _FACTORS[0] + codes[1:-1] * _FACTORS[1] + codes[2:] * _FACTORS[2]
    )
    mixed ^= mixed >> np.uint32(15)
    mixed *= np.uint32(0x2C1B3C6D)
    mixed ^= mixed >> np.uint32(12)
    yield mixed
    second = (mixed >> np.uint32(16)) ^ (mixed * _SECOND)
    yield second
    yield (second >> np.uint32(15)) ^ (second * _THIRD)
