"""Pages of an answer: a cursor goes on where the last one ended, and belongs to the question it was given for."""

from __future__ import annotations

import hashlib
from typing import Final

import orjson

from latent_core.domain import cursors
from latent_core.domain.errors import Invalid
from latent_core.domain.query import SearchRequest

MAX_OFFSET: Final = 1000
"""Hits that may be paged through; a better question finds more."""
_OWN: Final = frozenset({"cursor", "diagnostics", "explain"})
"""What may differ between the pages of one answer."""


def offset_of(request: SearchRequest) -> int:
    """Where the page begins; ``Invalid`` for a cursor that is not one of this question."""
    if request.cursor is None:
        return 0
    offset, _, digest = cursors.decode(request.cursor).partition(":")
    if not offset.isdecimal() or len(offset) > 4 or digest != _digest(request):
        raise Invalid("the cursor belongs to another question: begin again without it")
    return int(offset)


def cursor_at(request: SearchRequest, offset: int) -> str | None:
    """None beyond what may be paged through."""
    return cursors.encode(f"{offset}:{_digest(request)}") if offset <= MAX_OFFSET else None


def _digest(request: SearchRequest) -> str:
    asked = request.model_dump(mode="json", exclude=set(_OWN))
    return hashlib.sha256(orjson.dumps(asked, option=orjson.OPT_SORT_KEYS)).hexdigest()[:12]
