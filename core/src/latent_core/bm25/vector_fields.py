"""Term vectors in Postgres' binary form, as COPY takes them: it reads those in text for longer than all else of a row."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from latent_core.bm25.packing import TermCounts, joined
from latent_core.bm25.term_vectors import (
    RARE,
    Marks,
    counted_in,
    counted_singly,
    entries_of,
    marked,
    parts_of,
)
from latent_core.domain.errors import Invalid

MAX_POSITION: Final = 16_383
MAX_POSITIONS: Final = 256
"""Of a lexeme. What is above either is cut, as Postgres does with text."""
MAX_LEXEME: Final = 2046
MAX_DATA: Final = 2**20 - 1
"""Bytes of a lexeme, and of all that stands in a vector. Postgres refuses more, and in this form as a defect of its own."""
LONG: Final = MAX_DATA // 4
"""Characters of a vector that may hold more than ``MAX_DATA``; those of a chunk have a hundredth of it."""
_DIGITS: Final = 5
_HEAD: Final = struct.Struct("!ii")

Numbers = NDArray[np.int64]


Read = tuple[TermCounts, list[bytes]]


def read_vectors(tsvs: Sequence[str]) -> Read:
    """Terms of many vectors with their counts, and each as a field of a row, its length before it.

    ``Invalid`` for what is no term vector of ours.
    """
    found = [_by_columns(part) or _sorted_out(part) for part in parts_of(tsvs)]
    return found[0] if len(found) == 1 else _together(found)


def _together(found: Sequence[Read]) -> Read:
    return joined([one for one, _ in found]), [field for _, fields in found for field in fields]


def _by_columns(tsvs: Sequence[str]) -> Read | None:
    """None where a vector is of no usual kind."""
    marks = None if any(len(tsv) > LONG for tsv in tsvs) else marked(tsvs)
    found = counted_in(marks) if marks else None
    numbers = _numbers(marks) if marks else None
    if marks is None or found is None or numbers is None:
        return None
    return found, _fields(marks, numbers)


def _sorted_out(tsvs: Sequence[str]) -> Read:
    """Vectors with a sign of ``RARE``, and long ones, are read one by one, and the others together."""
    rare = [len(tsv) > LONG or any(sign in tsv for sign in RARE) for tsv in tsvs]
    plain, odd = ([tsvs[n] for n in range(len(tsvs)) if rare[n] is kind] for kind in (False, True))
    found, fields = _together([_by_columns(plain) or _singly(plain), _singly(odd)])
    places = np.argsort(np.argsort(rare, kind="stable"))
    return found.only(places), [fields[place] for place in places.tolist()]


def _singly(tsvs: Sequence[str]) -> Read:
    return counted_singly(tsvs), [_one(tsv) for tsv in tsvs]


def _one(tsv: str) -> bytes:
    found: dict[str, set[int]] = {}
    for lexeme, listed in entries_of(tsv):
        if not lexeme or "\0" in lexeme or len(lexeme.encode()) > MAX_LEXEME:
            raise Invalid(
                f"a term vector has a term that is empty, too long, or no text: '{tsv[:80]}'"
            )
        places = {_position(digits_left) for digits_left in listed.split(",")}
        if 0 in places:
            raise Invalid(f"a term vector has a position 0: '{tsv[:80]}'")
        found.setdefault(lexeme, set()).update(places)
    parts = [b""]
    for lexeme, places in found.items():
        kept = sorted(places)[:MAX_POSITIONS]
        parts.append(lexeme.encode() + struct.pack(f"!xH{len(kept)}H", len(kept), *kept))
    data = b"".join(parts)
    if len(data) > MAX_DATA:
        raise Invalid(f"a term vector has more than {MAX_DATA} bytes: '{tsv[:80]}'")
    return _HEAD.pack(4 + len(data), len(found)) + data


def _position(digits_left: str) -> int:
    digits = digits_left.lstrip("0") or "0"
    return min(int(digits), MAX_POSITION) if len(digits) <= _DIGITS else MAX_POSITION


def _numbers(marks: Marks) -> Numbers | None:
    """All positions, one after the other; None where some would be cut, or do not stand in their order."""
    spaces = np.append(marks.opens[1:], len(marks.whole))[: len(marks.opens)] - 1
    starts = np.sort(np.concatenate([marks.closes + 2, marks.commas + 1]))
    ends = np.sort(np.concatenate([spaces, marks.commas]))
    widths = ends - starts
    if (widths > _DIGITS).any() or (marks.closes - marks.opens > MAX_LEXEME + 1).any():
        return None
    signs = np.frombuffer(marks.whole, np.uint8)
    numbers = np.zeros(len(starts), np.int64)
    for digit in range(_DIGITS):
        digits_left = widths > digit
        numbers[digits_left] += (
            signs[ends[digits_left] - 1 - digit] - np.int64(ord("0"))
        ) * 10**digit
    rises = numbers[1:] > numbers[:-1]
    rises[np.cumsum(marks.counts)[:-1] - 1] = True  # between two lexemes
    fit = rises.all() and (numbers > 0).all() and (numbers <= MAX_POSITION).all()
    return numbers if fit and (marks.counts <= MAX_POSITIONS).all() else None


def _fields(marks: Marks, numbers: Numbers) -> list[bytes]:
    """Of each lexeme its bytes, a zero, how many positions it has, and these, of two bytes each."""
    widths, counts = marks.closes - marks.opens - 1, marks.counts
    ends = np.cumsum(widths + 3 + 2 * counts)
    last = np.cumsum(marks.sizes)
    up_to = np.append(0, ends)
    lengths = up_to[last] - up_to[last - marks.sizes]
    begins = np.cumsum(lengths + _HEAD.size) - lengths - _HEAD.size
    data = np.zeros(int(lengths.sum()) + _HEAD.size * len(lengths), np.uint8)
    heads = np.stack([lengths + 4, marks.sizes], axis=1).astype(">i4").view(np.uint8)
    data[begins[:, None] + np.arange(_HEAD.size)] = heads.reshape(-1, _HEAD.size)
    owners = np.repeat(np.arange(len(lengths)), marks.sizes)
    at = up_to[:-1] + _HEAD.size * (owners + 1)
    edges = np.zeros(len(data) + 1, np.int8)
    edges[at], edges[at + widths] = 1, -1
    signs = np.frombuffer(marks.whole, np.uint8)
    digits_left = signs[~marks.outside & (signs != ord("'"))]
    data[np.add.accumulate(edges[:-1], dtype=np.int8).view(np.bool_)] = digits_left
    at += widths + 1
    _put(data, at, counts)
    firsts = np.cumsum(counts) - counts
    _put(data, np.repeat(at + 2 - 2 * firsts, counts) + 2 * np.arange(len(numbers)), numbers)
    bounds = zip(begins.tolist(), (begins + _HEAD.size + lengths).tolist(), strict=True)
    whole = data.tobytes()
    return [whole[start:end] for start, end in bounds]


def _put(data: NDArray[np.uint8], at: Numbers, numbers: Numbers) -> None:
    """Numbers of two bytes each to these places."""
    data[at] = numbers >> 8
    data[at + 1] = numbers & 0xFF
