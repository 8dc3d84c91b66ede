"""Keeps the content of requests out of error messages: servers quote what they refuse."""

from __future__ import annotations

from typing import Final

from latent_core.models.llm.port import Completion, TextPart

QUOTE: Final = 16
"""A passage of a message with this length that is in the request is a quote."""
HIDDEN: Final = "…"


def without_quotes(message: str, request: Completion) -> str:
    """``message`` without passages of what the model was shown."""
    texts = " ".join(
        " ".join(text.split())
        for text in (request.system, *(p.text for p in request.parts if isinstance(p, TextPart)))
    )
    kept: list[str] = []
    at = 0
    while at < len(message):
        end = at
        while end + QUOTE <= len(message) and message[end : end + QUOTE] in texts:
            end += 1
        if end > at:
            kept.append(HIDDEN)
            at = end + QUOTE - 1
        else:
            kept.append(message[at])
            at += 1
    return "".join(kept)
