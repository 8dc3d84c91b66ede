"""Trigram signatures: a text that holds a string has all bits of that string's signature set.

Three bits are set by hashes of every three characters that follow each other, case folded, so the same signature
serves searches with and without case. False positives are read and refused; there are no false negatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

SIZES: Final = (8192, 32768, 65536)
"""Bits of a signature, small enough for its text: about a quarter of them is set, so that one text in a hundred passes
for a string of three characters that it does not hold. A hash is cut to the size, so that one mask a size serves."""
CHARS: Final = (1500, 8000)
"""Texts longer than these take the next size."""
LEAST_CHARS: Final = 3
"""A shorter string has no trigram and excludes nothing."""

_SECOND: Final = np.uint32(0x297A2D39)
_THIRD: Final = np.uint32(0x7FEB352D)
_FACTORS: Final = (np.uint32(0x9E3779B1), np.uint32(0x85EBCA77), np.uint32(0xC2B2AE3D))


def signature(text: str) -> str:
    """The bits of ``text``, as Postgres reads a bit string: ``x`` and hexadecimal digits."""
    size = SIZES[sum(len(text) > limit for limit in CHARS)]
    return _written(_hashes(text), size)


def mask(literals: Sequence[str], size: int) -> str:
    """The bits that a text holding all of ``literals`` has in a signature of ``size`` bits."""
    found = [_hashes(literal) for literal in literals]
    return _written(np.concatenate([*found, np.empty(0, np.uint32)]), size)


def _hashes(text: str) -> NDArray[np.uint32]:
    codes: NDArray[np.uint32] = np.frombuffer(
        text.casefold().encode("utf-32-le"), dtype=np.dtype("<u4")
    ).astype(np.uint32)
    if len(codes) < LEAST_CHARS:
        return np.empty(0, np.uint32)
    mixed: NDArray[np.uint32] = (
        codes[:-2] * _FACTORS[0] + codes[1:-1] * _FACTORS[1] + codes[2:] * _FACTORS[2]
    )
    mixed ^= mixed >> np.uint32(15)
    mixed *= np.uint32(0x2C1B3C6D)
    mixed ^= mixed >> np.uint32(12)
    second = (mixed >> np.uint32(16)) ^ (mixed * _SECOND)
    return np.concatenate([mixed, second, (second >> np.uint32(15)) ^ (second * _THIRD)])


def _written(hashes: NDArray[np.uint32], size: int) -> str:
    bits = np.zeros(size, np.uint8)
    bits[hashes & np.uint32(size - 1)] = 1
    return "x" + np.packbits(bits).tobytes().hex()
