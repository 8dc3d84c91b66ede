"""Versions of what makes chunks. Raise one when its output changes: a document that is added again is then
made anew, and a listing asks for those that an older version made."""

from __future__ import annotations

from typing import Final

PARSERS: Final = 2
CHUNKER: Final = 2
ANALYSER: Final = 2
HANDLER: Final = f"{PARSERS}.{CHUNKER}.{ANALYSER}"
"""As the lineage tells it."""
