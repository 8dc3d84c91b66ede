"""Term vectors as Postgres writes them, read back: what postings are rebuilt from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

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


# What stands between the lexemes of plain vectors that follow each other, with a quote after each.
BETWEEN: Final = re.compile(r"(?::[0-9]+(?:,[0-9]+)*+ ')*+")
TSVS_AT_ONCE: Final = 256
"""Few enough that no other thread waits long for the interpreter."""


def counted_terms(tsvs: Sequence[str]) -> Counted:
    """The same of many term vectors at once, for a fraction of what each alone costs."""
    parts = [tsvs[n : n + TSVS_AT_ONCE] for n in range(0, len(tsvs), TSVS_AT_ONCE)]
    return joined([_plain(part) or _each(part) for part in parts])


def _plain(tsvs: Sequence[str]) -> Counted | None:
    """None where a vector has a lexeme with a quote or a backslash, or is none of ours."""
    whole = "".join([tsv + " " for tsv in tsvs if tsv])
    pieces = whole.split("'")
    lexemes, between = pieces[1::2], pieces[2::2]
    sizes = [tsv.count("'") // 2 for tsv in tsvs]
    plain = pieces[0] == "" and "''" not in whole and "\\" not in whole
    even = len(lexemes) == len(between) == sum(sizes) and all(t[:1] in "'" for t in tsvs)
    if not (plain and even and BETWEEN.fullmatch("".join([one + "'" for one in between]))):
        return None
    start = 0
    for size in sizes:
        if len(set(lexemes[start : start + size])) < size:
            return None
        start += size
    return counted(lexemes, [one.count(",") + 1 for one in between], sizes)


def _each(tsvs: Sequence[str]) -> Counted:
    found = [tfs_of(tsv) for tsv in tsvs]
    terms = [term for tfs in found for term in tfs]
    return counted(terms, [tf for tfs in found for tf in tfs.values()], [len(t) for t in found])
