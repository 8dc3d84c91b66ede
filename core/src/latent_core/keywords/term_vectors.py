"""Term vectors as Postgres writes them, read back: what postings are rebuilt from."""

from __future__ import annotations

import re
from typing import Final

from latent_core.domain.errors import Invalid
from latent_core.keywords.packing import MAX_TF

# Lexemes are quoted always, with quotes and backslashes doubled; positions may carry a weight, ours do not.
ENTRY: Final = re.compile(r"'((?:[^'\\]|''|\\\\)*)':(\d+(?:,\d+)*)(?: |$)")


def tfs_of(tsv: str) -> dict[str, int]:
    """Term to the number of its occurrences; ``Invalid`` for what is no term vector of ours."""
    found: dict[str, int] = {}
    end = 0
    for match in ENTRY.finditer(tsv):
        if match.start() != end:
            break
        end = match.end()
        lexeme, positions = match.groups()
        if "'" in lexeme or "\\" in lexeme:
            lexeme = lexeme.replace("''", "'").replace("\\\\", "\\")
        found[lexeme] = min(positions.count(",") + 1, MAX_TF)
    if end != len(tsv):
        raise Invalid(f"a term vector cannot be understood after {end} of {len(tsv)} characters")
    return found
