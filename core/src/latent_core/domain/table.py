"""The header row of a Markdown table, without which its cells have no meaning."""

from __future__ import annotations

import re
from typing import Final

from latent_core.domain.chunk import BlockType

MAX_HEADER_CHARS: Final = 1000
"""A longer header row is omitted, because it would fill the snippet."""
_DELIMITER: Final = re.compile(r"[ \t>]*+\|?[ \t]*+:?-[-:| \t]*+(?:\r?\n|\Z)")
"""The line of dashes below a header row."""


def header_row(text: str) -> str:
    """The header row of a table, without its line end; empty if it has none or a long one."""
    header, _, rest = text.partition("\n")
    if not _DELIMITER.match(rest) or len(header) > MAX_HEADER_CHARS:
        return ""
    return header.rstrip()


def header_above(text: str | None, block_type: str, snippet: str) -> str:
    """The header row of a table whose ``snippet`` begins below it, with a line end; else empty."""
    if block_type != BlockType.TABLE.value or not text or text.startswith(snippet):
        return ""
    header = header_row(text)
    return f"{header}\n" if header else ""
