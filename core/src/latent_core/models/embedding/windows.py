"""A text that is longer than the embedder reads, cut into texts that are not."""

from __future__ import annotations

from itertools import chain
from typing import Final

from latent_core.models.embedding.port import Tokenizer

_NEAR: Final = 0.5
"""How far back a cut may be moved to stand before a word, as a share of the piece."""


def windows(text: str, tokenizer: Tokenizer, window: int) -> list[str]:
    """Pieces of ``text``, each at most ``window`` tokens, that joined are ``text`` again.

    Pieces are of about the same length, since a last one of two words would be a poor vector, and
    are cut before words where that is possible.
    """
    if tokenizer.count([text])[0] <= window:
        return [text]
    # Several tokens may stand for one character: a cut never falls between them.
    starts = sorted({start for start, _ in tokenizer.offsets(text)})
    pieces: list[str] = []
    first = 0
    while first < len(starts):
        begin = 0 if first == 0 else starts[first]
        after = _cut(text, starts, first, window)
        piece = text[begin : _end(text, starts, after)]
        while after - first > 1 and (excess := tokenizer.count([piece])[0] - window) > 0:
            # Cut off from their words, pieces of words may be read as more tokens.
            after = max(first + 1, after - excess)
            piece = text[begin : _end(text, starts, after)]
        pieces.append(piece)
        first = after
    return pieces


def _end(text: str, starts: list[int], after: int) -> int:
    return starts[after] if after < len(starts) else len(text)


def _cut(text: str, starts: list[int], first: int, window: int) -> int:
    """Index of the token before which the piece that begins with token ``first`` ends."""
    left = len(starts) - first
    if left <= window:
        return len(starts)
    share = -(-left // -(-left // window))
    earliest = first + max(1, int(share * _NEAR))
    later = range(first + share, first + window + 1)
    sooner = range(first + share - 1, earliest - 1, -1)
    for token in chain(later, sooner):
        if text[starts[token] - 1].isspace():
            return token
    return first + share
