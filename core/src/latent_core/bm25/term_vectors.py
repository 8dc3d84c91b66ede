"""Reads term vectors in Postgres's format, to rebuild postings."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from latent_core.bm25.packing import TermCounts, counted, joined
from latent_core.domain.errors import Invalid

# Lexemes are quoted always, with quotes and backslashes doubled; positions may carry a weight, ours do not. Nothing is
# given back, and an entry begins after a space alone, so that one look at what a stranger wrote is enough.
ENTRY: Final = re.compile(r"(?<![^ ])'([^'\\]*+(?:(?:''|\\\\)[^'\\]*+)*+)':([0-9,]++)(?: |\Z)")


def tfs_of(tsv: str) -> dict[str, int]:
    """Term to the number of its positions; ``Invalid`` if the text is not one of our term vectors."""
    return {lexeme: listed.count(",") + 1 for lexeme, listed in entries_of(tsv)}


def entries_of(tsv: str) -> Iterator[tuple[str, str]]:
    """Each lexeme with its positions, separated by commas; ``Invalid`` if the text is not one of our term vectors."""
    parts = ENTRY.split(tsv)  # what is between two entries, a lexeme, its positions, and so on
    lexemes, positions = parts[1::3], parts[2::3]
    listed = ",".join(positions)
    if any(parts[::3]) or ",," in listed or listed.startswith(",") or listed.endswith(","):
        raise Invalid(f"a term vector cannot be understood: '{tsv[:80]}'")
    if "''" in tsv or "\\" in tsv:
        lexemes = [one.replace("''", "'").replace("\\\\", "\\") for one in lexemes]
    return zip(lexemes, positions, strict=True)


AFTER: Final = {"'": ":", ":": "0", "0": "0, ", ",": "0", " ": "'"}
"""Characters that may follow each character outside of lexemes; 0 stands for any digit, and a space follows each
vector."""
RARE: Final = ("''", "\\", "\0")
"""In a lexeme: a quote, a backslash, and the padding of short ones."""
WIDE: Final = 16
"""Longer lexemes are rare and compared one by one."""
BYTES_AT_ONCE: Final = 8 * 1024 * 1024
"""Each term is looked up once per batch, which takes about eight times the memory."""
_HALF: Final = 8
_FACTORS: Final = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))


def parts_of(tsvs: Sequence[str]) -> Iterator[Sequence[str]]:
    """Vectors to read together; at least one part."""
    start = length = 0
    for place, tsv in enumerate(tsvs):
        if length and length + len(tsv) > BYTES_AT_ONCE:
            yield tsvs[start:place]
            start, length = place, 0
        length += len(tsv)
    yield tsvs[start:]


def counted_in(marks: Marks) -> TermCounts | None:
    """Terms of many vectors with their counts, at a fraction of the cost of single vectors.

    None if a vector has a lexeme twice, or two lexemes share a hash.
    """
    found = _numbered(marks.whole, marks.opens + 1, marks.closes)
    if found is None:
        return None
    terms, places = found
    sizes = marks.sizes
    named = np.sort(np.repeat(np.arange(len(sizes)), sizes) * len(terms) + places)
    if (named[1:] == named[:-1]).any():
        return None
    return TermCounts(terms, places, marks.counts, sizes)


def counted_singly(tsvs: Sequence[str]) -> TermCounts:
    """The same for vectors of any kind, one by one; ``Invalid`` if a text is not one of our term vectors."""
    found = [tfs_of(tsv) for tsv in tsvs]
    terms = [term for tfs in found for term in tfs]
    return counted(terms, [tf for tfs in found for tf in tfs.values()], [len(t) for t in found])


@dataclass(frozen=True, slots=True)
class Marks:
    """All vectors as one text, a space after each, and the positions in it."""

    whole: bytes
    outside: NDArray[np.bool_]
    """For each byte, whether it is outside of lexemes; the opening quote is inside, the closing quote is outside."""
    opens: NDArray[np.int64]
    closes: NDArray[np.int64]
    """The quotes around each lexeme."""
    commas: NDArray[np.int64]
    counts: NDArray[np.int64]
    """The number of positions of each lexeme."""
    sizes: NDArray[np.int64]
    """The number of lexemes of each vector."""


def marked(tsvs: Sequence[str]) -> Marks | None:
    """None if a vector has a character of ``RARE``, or is not one of ours."""
    vectors = [tsv.encode() for tsv in tsvs]
    whole = b"".join([vector + b" " for vector in vectors if vector])
    signs = np.frombuffer(whole, np.uint8)
    is_quote = signs == ord("'")
    quotes = np.flatnonzero(is_quote)
    sizes = _sizes(vectors, quotes)
    if sizes is None or any(sign.encode() in whole for sign in RARE):
        return None
    outside = np.bitwise_xor.accumulate(is_quote) ^ True
    if not _follow(whole, outside):
        return None
    commas = np.flatnonzero((signs == ord(",")) & outside)
    opens, closes = quotes[::2], quotes[1::2]
    owners = np.searchsorted(closes, commas) - 1
    counts = np.bincount(owners, minlength=len(closes)) + 1
    return Marks(whole, outside, opens, closes, commas, counts, sizes)


def _sizes(tsvs: Sequence[bytes], quotes: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """The number of lexemes of each vector; None if one does not start with a lexeme, or ends within one."""
    lengths = np.array([len(tsv) + 1 if tsv else 0 for tsv in tsvs], np.int64)
    ends = np.cumsum(lengths)
    passed = np.searchsorted(quotes, ends)
    sizes = np.diff(passed, prepend=0)
    begins = (ends - lengths)[lengths > 0]
    firsts = (passed - sizes)[lengths > 0]
    if (sizes[lengths > 0] == 0).any() or (sizes % 2).any() or (quotes[firsts] != begins).any():
        return None
    return sizes // 2


def _follow(whole: bytes, outside: NDArray[np.bool_]) -> bool:
    """Whether outside of lexemes every character may follow the previous one."""
    kinds = np.frombuffer(whole.translate(_KINDS), np.uint8)
    pairs = kinds[:-1] * np.uint8(len(AFTER) + 1) + kinds[1:]
    wrong = np.frombuffer(pairs.tobytes().translate(_WRONG), np.bool_)
    return not (wrong & outside[:-1]).any()


def _kinds() -> bytes:
    """For each byte, the number of its character in ``AFTER``; the last number marks invalid ones."""
    kinds = np.full(256, len(AFTER), np.uint8)
    for number, sign in enumerate(AFTER):
        kinds[list(b"0123456789" if sign == "0" else sign.encode())] = number
    return kinds.tobytes()


def _wrong(kinds: bytes) -> bytes:
    """For two kinds that follow each other, whether this is invalid."""
    wrong = np.ones((len(AFTER) + 1, len(AFTER) + 1), np.uint8)
    for number, after in enumerate(AFTER.values()):
        wrong[number, [kinds[sign] for sign in after.encode()]] = 0
    return wrong.tobytes().ljust(256, b"\1")


_KINDS: Final = _kinds()
_WRONG: Final = _wrong(_KINDS)


def _numbered(
    whole: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[list[str], NDArray[np.int32]] | None:
    """Every lexeme once, and the index of each; None if two share a hash."""
    places = np.empty(len(starts), np.int32)
    wide = ends - starts > WIDE
    words = _words(whole, starts[~wide], (ends - starts)[~wide])
    words ^= words >> np.uint64(29)  # of no two different ones the same
    firsts, places[~wide] = _alike(words[0] * _FACTORS[0] ^ words[1] * _FACTORS[1])
    if (words[:, firsts[places[~wide]]] != words).any():
        return None
    bounds = zip(starts[~wide][firsts].tolist(), ends[~wide][firsts].tolist(), strict=True)
    terms = [whole[start:end].decode() for start, end in bounds]
    places[wide], rest = _numbered_singly(whole, starts[wide], ends[wide])
    places[wide] += len(terms)
    return terms + rest, places


def _alike(hashes: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The first place of each hash, and the index of each.

    By one sort of plain numbers, which is fastest: the lowest bits of each hash hold its place.
    """
    bits = np.uint64(len(hashes).bit_length())
    keys = (hashes >> bits << bits) | np.arange(len(hashes), dtype=np.uint64)
    keys.sort()
    order = (keys & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int64)
    keys >>= bits
    begins = np.ones(len(keys), np.bool_)
    begins[1:] = keys[1:] != keys[:-1]
    places = np.empty(len(keys), np.int32)
    places[order] = np.cumsum(begins, dtype=np.int32) - 1
    return order[begins], places


def _numbered_singly(
    whole: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[list[int], list[str]]:
    numbers: dict[bytes, int] = {}
    bounds = zip(starts.tolist(), ends.tolist(), strict=True)
    places = [numbers.setdefault(whole[start:end], len(numbers)) for start, end in bounds]
    return places, [lexeme.decode() for lexeme in numbers]


def _words(
    whole: bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """The bytes of each lexeme, padded with zeros, as a column of two numbers."""
    padded = whole + bytes(WIDE)
    at = np.ndarray((len(whole) + _HALF,), "<u8", padded, strides=(1,))  # from each byte on
    halves = [at[starts] & _MASKS[np.minimum(lengths, _HALF)]]
    halves.append(at[starts + _HALF] & _MASKS[np.maximum(lengths - _HALF, 0)])
    return np.stack(halves)


_MASKS: Final = np.array([(1 << 8 * length) - 1 for length in range(_HALF + 1)], np.uint64)
"""Masks of the bytes that belong to a lexeme of a given length."""


MAX_POSITION: Final = 16_383
MAX_POSITIONS: Final = 256
"""Limit per lexeme. Higher ones are cut, as Postgres does."""
MAX_LEXEME: Final = 2046
MAX_DATA: Final = 2**20 - 1
"""Bytes of a lexeme, and of all data in a vector; Postgres's limit."""
LONG: Final = MAX_DATA // 4
"""Characters of a vector that may exceed ``MAX_DATA``; those of a chunk have a hundredth of it."""
_DIGITS: Final = 5
_HEAD: Final = struct.Struct("!ii")

Numbers = NDArray[np.int64]


Read = tuple[TermCounts, list[bytes]]


def read_vectors(tsvs: Sequence[str]) -> Read:
    """Terms of many vectors with their counts, and each vector as a field of a COPY row, with its length.

    Raises ``Invalid`` if a text is not one of our term vectors.
    """
    found = [_by_columns(part) or _sorted_out(part) for part in parts_of(tsvs)]
    return found[0] if len(found) == 1 else _together(found)


def _together(found: Sequence[Read]) -> Read:
    return joined([one for one, _ in found]), [field for _, fields in found for field in fields]


def _by_columns(tsvs: Sequence[str]) -> Read | None:
    """None if a vector is unusual."""
    marks = None if any(len(tsv) > LONG for tsv in tsvs) else marked(tsvs)
    found = counted_in(marks) if marks else None
    numbers = _numbers(marks) if marks else None
    if marks is None or found is None or numbers is None:
        return None
    return found, _fields(marks, numbers)


def _sorted_out(tsvs: Sequence[str]) -> Read:
    """Vectors with characters of ``RARE``, and long ones, are read one by one, the others together."""
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
    """All positions in sequence; None if some would be cut or are not in order."""
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
    """The field of each lexeme: its bytes, a zero, the number of positions, and these, two bytes each."""
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
    """Write numbers of two bytes to these places."""
    data[at] = numbers >> 8
    data[at + 1] = numbers & 0xFF
