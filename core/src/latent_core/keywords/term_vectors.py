"""Term vectors as Postgres writes them, read back: what postings are rebuilt from."""

from __future__ import annotations

import re
from typing import Final

from latent_core.domain.errors import Invalid

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
