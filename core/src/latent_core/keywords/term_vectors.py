"""Term vectors as Postgres writes them, read back: what postings are rebuilt from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from latent_core.domain.errors import Invalid
from latent_core.keywords.packing import Counted, counted, joined

# Lexemes are quoted always, with quotes and backslashes doubled; positions may carry a weight, ours do not. Nothing is
# given back, and an entry begins after a space alone, so that one look at what a stranger wrote is enough.
ENTRY: Final = re.compile(r"(?<![^ ])'([^'\\]*+(?:(?:''|\\\\)[^'\\]*+)*+)':([0-9,]++)(?: |\Z)")


def tfs_of(tsv: str) -> dict[str, int]:
    """Term to the number of its positions; ``Invalid`` for what is no term vector of ours."""
    parts = ENTRY.split(tsv)  # what is between two entries, a lexeme, its positions, and so on
    lexemes, positions = parts[1::3], parts[2::3]
    listed = ",".join(positions)
    if any(parts[::3]) or ",," in listed or listed.startswith(",") or listed.endswith(","):
        raise Invalid(f"a term vector cannot be understood: '{tsv[:80]}'")
    if "''" in tsv or "\\" in tsv:
        lexemes = [one.replace("''", "'").replace("\\\\", "\\") for one in lexemes]
    return dict(zip(lexemes, [one.count(",") + 1 for one in positions], strict=True))


AFTER: Final = {"'": ":", ":": "0", "0": "0, ", ",": "0", " ": "'"}
"""What may follow each sign outside of lexemes; 0 is any digit, and a space stands after each vector."""
WIDE: Final = 16
"""Longer lexemes are rare, and told apart one by one."""
TSVS_AT_ONCE: Final = 1000
"""Of each lexeme its bytes and their places are kept: some ten megabytes."""
_FACTORS: Final = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))


def counted_terms(tsvs: Sequence[str]) -> Counted:
    """The same of many term vectors at once, for a fraction of what each alone costs."""
    parts = [tsvs[n : n + TSVS_AT_ONCE] for n in range(0, len(tsvs), TSVS_AT_ONCE)]
    found = [_plain([tsv.encode() for tsv in part]) or _each(part) for part in parts]
    return found[0] if len(found) == 1 else joined(found)


def _plain(tsvs: Sequence[bytes]) -> Counted | None:
    """None where a vector has a lexeme with a quote or a backslash, or is none of ours.

    By columns: all vectors are one text, and what it says of each lexeme stands in an array.
    """
    whole = b"".join([tsv + b" " for tsv in tsvs if tsv])
    signs = np.frombuffer(whole, np.uint8)
    quotes = np.flatnonzero(signs == ord("'"))
    sizes = _sizes(tsvs, quotes)
    rare = any(sign in whole for sign in (b"''", b"\\", b"\0"))
    if rare or sizes is None:
        return None
    outside = np.bitwise_xor.accumulate(signs == ord("'")) ^ True
    found = _numbered(whole, quotes[::2] + 1, quotes[1::2]) if _follow(signs, outside) else None
    if found is None:
        return None
    terms, places = found
    named = np.sort(np.repeat(np.arange(len(sizes)), sizes) * len(terms) + places)
    if (named[1:] == named[:-1]).any():
        return None
    commas = np.add.accumulate((signs == ord(",")) & outside, dtype=np.int64)
    tfs = np.diff(commas[quotes[1::2]], append=commas[-1:]) + 1
    return Counted(terms, places, tfs, sizes)


def _sizes(tsvs: Sequence[bytes], quotes: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """How many lexemes each vector has; None when one does not begin with a lexeme, or ends within one."""
    lengths = np.array([len(tsv) + 1 if tsv else 0 for tsv in tsvs], np.int64)
    ends = np.cumsum(lengths)
    passed = np.searchsorted(quotes, ends)
    sizes = np.diff(passed, prepend=0)
    begins = (ends - lengths)[lengths > 0]
    firsts = (passed - sizes)[lengths > 0]
    if (sizes[lengths > 0] == 0).any() or (sizes % 2).any() or (quotes[firsts] != begins).any():
        return None
    return sizes // 2


def _follow(signs: NDArray[np.uint8], outside: NDArray[np.bool_]) -> bool:
    """Whether outside of lexemes each sign follows one that it may follow."""
    kinds = _KINDS[signs]
    pairs = kinds[:-1] * np.uint8(len(AFTER) + 1) + kinds[1:]
    return bool(_PAIRS[pairs[outside[:-1]]].all())


def _kinds() -> NDArray[np.uint8]:
    """Of each byte the number of its sign in ``AFTER``; the last is what has no place there."""
    kinds = np.full(256, len(AFTER), np.uint8)
    for number, sign in enumerate(AFTER):
        kinds[list(b"0123456789" if sign == "0" else sign.encode())] = number
    return kinds


def _pairs(kinds: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Of two that follow each other whether they may."""
    pairs = np.zeros((len(AFTER) + 1, len(AFTER) + 1), np.bool_)
    for number, after in enumerate(AFTER.values()):
        pairs[number, kinds[list(after.encode())]] = True
    return pairs.reshape(-1)


_KINDS: Final = _kinds()
_PAIRS: Final = _pairs(_KINDS)


def _numbered(
    whole: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[list[str], NDArray[np.int32]] | None:
    """Every lexeme once, and of each its place among them; None when two share a hash."""
    places = np.empty(len(starts), np.int32)
    wide = ends - starts > WIDE
    words = _words(whole, starts[~wide], (ends - starts)[~wide])
    words ^= words >> np.uint64(29)  # of no two different ones the same
    mixed = words[:, 0] * _FACTORS[0] ^ words[:, 1] * _FACTORS[1]
    _, firsts, places[~wide] = np.unique(mixed, return_index=True, return_inverse=True)
    if (words[firsts][places[~wide]] != words).any():
        return None
    bounds = zip(starts[~wide][firsts].tolist(), ends[~wide][firsts].tolist(), strict=True)
    terms = [whole[start:end].decode() for start, end in bounds]
    places[wide], rest = _numbered_singly(whole, starts[wide], ends[wide])
    places[wide] += len(terms)
    return terms + rest, places


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
    """The bytes of each lexeme, zeros behind them, as a row of numbers."""
    column = np.arange(WIDE)
    signs = np.frombuffer(whole + bytes(WIDE), np.uint8)[starts[:, None] + column]
    signs[column >= lengths[:, None]] = 0
    words: NDArray[np.uint64] = signs.view("<u8")
    return words


def _each(tsvs: Sequence[str]) -> Counted:
    found = [tfs_of(tsv) for tsv in tsvs]
    terms = [term for tfs in found for term in tfs]
    return counted(terms, [tf for tfs in found for tf in tfs.values()], [len(t) for t in found])
