"""Versions of what makes chunks. Raise one when its output changes: a document that is added again is then made anew."""

from __future__ import annotations

from typing import Final

PARSERS: Final = 1
CHUNKER: Final = 1
ANALYSER: Final = 1
HANDLER: Final = f"{PARSERS}.{CHUNKER}.{ANALYSER}"
"""As the lineage tells it."""
