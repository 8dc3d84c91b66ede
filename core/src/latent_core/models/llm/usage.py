"""Tokens of an answer: as the server reports them, or estimated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from latent_core.models.llm.port import Completion, TextPart, Usage
from latent_core.models.llm.wire import ModelWire

BYTES_PER_TOKEN: Final = 4
TOKENS_OF_A_PICTURE: Final = 1500
"""Of an image, and of a PDF, whose pages are not counted."""


def estimated(request: Completion, text: str) -> Usage:
    """Of a request and the text of its answer, where the server reports nothing."""
    return Usage(_of_request(request), _of_text(text))


def reported(
    wire: ModelWire,
    counts: Any,
    read: Sequence[str],
    written: str,
    request: Completion,
    text: str,
) -> Usage:
    """The tokens in the fields ``read`` (added up) and ``written`` of a response, each estimated if it is missing."""
    fields = counts if isinstance(counts, Mapping) else {}
    given = [_count(wire, fields[key]) for key in read if fields.get(key) is not None]
    output = fields.get(written)
    return Usage(
        sum(given) if given else _of_request(request),
        _of_text(text) if output is None else _count(wire, output),
    )


def _count(wire: ModelWire, value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53:
        return value
    raise wire.malformed("its usage is not a number of tokens")


def _of_request(request: Completion) -> int:
    texts = [request.system, *(p.text for p in request.parts if isinstance(p, TextPart))]
    pictures = sum(not isinstance(part, TextPart) for part in request.parts)
    return sum(_of_text(text) for text in texts) + pictures * TOKENS_OF_A_PICTURE


def _of_text(text: str) -> int:
    return -(-len(text.encode()) // BYTES_PER_TOKEN)
