"""What is embedded for a chunk: its text, cut into windows, or its picture.

A chunk of modality image is the picture of its page. An embedder that reads images gets the picture; any other
embedder, or any chunk whose page is not rendered yet, uses the text.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import chain
from typing import Final

from latent_core.domain.errors import Invalid
from latent_core.domain.ids import Sha256, content_hash
from latent_core.models.embedding.port import EmbeddingModel, Tokenizer

_NEAR: Final = 0.5
"""How far back a cut may move to fall before a word, as a share of the piece."""


def windows(text: str, tokenizer: Tokenizer, window: int) -> list[str]:
    """Cut ``text`` into pieces of at most ``window`` tokens; joined they are ``text`` again.

    Pieces have about the same length, since a last piece of two words would give a poor vector. Cuts fall
    before words where possible.
    """
    if tokenizer.count([text])[0] <= window:
        return [text]
    # Several tokens may encode one character: a cut never falls between them.
    starts = sorted({start for start, _ in tokenizer.offsets(text)})
    pieces: list[str] = []
    first = 0
    while first < len(starts):
        begin = 0 if first == 0 else starts[first]
        after = _cut(text, starts, first, window)
        piece = text[begin : _end(text, starts, after)]
        while after - first > 1 and (excess := tokenizer.count([piece])[0] - window) > 0:
            # A word cut in two may have more tokens than the whole word.
            after = max(first + 1, after - excess)
            piece = text[begin : _end(text, starts, after)]
        pieces.append(piece)
        first = after
    return pieces


def _end(text: str, starts: list[int], after: int) -> int:
    return starts[after] if after < len(starts) else len(text)


def _cut(text: str, starts: list[int], first: int, window: int) -> int:
    """Index after the last token of the piece that begins with token ``first``."""
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


_MAGIC: Final = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (8, b"WEBP", "image/webp"),
)


@dataclass(frozen=True, slots=True)
class StoredImage:
    """A stored picture, by the hash of its bytes and the container in whose store they are."""

    sha256: Sha256
    container_id: str


Piece = str | StoredImage
"""The input of one vector."""


def hash_of(piece: Piece) -> Sha256:
    """The bytes of a text are never those of a picture, so their hashes differ."""
    return piece.sha256 if isinstance(piece, StoredImage) else content_hash(piece)


ReadPicture = Callable[[StoredImage], Awaitable[bytes]]


def pieces(
    text: str, picture: StoredImage | None, tokenizer: Tokenizer, model: EmbeddingModel
) -> list[Piece]:
    """The inputs of ``model`` for a chunk: ``picture`` (its page image), or ``text`` in windows."""
    if picture is not None and model.reads_images:
        return [picture]
    return list(windows(text, tokenizer, model.window))


def media_type(image: bytes) -> str:
    """Raises ``Invalid`` for a format that embedders do not read."""
    for at, magic, kind in _MAGIC:
        if image.startswith(magic, at):
            return kind
    raise Invalid("embedders read images as PNG, JPEG or WebP only: convert this image")


def as_data_url(image: bytes) -> str:
    return f"data:{media_type(image)};base64,{b64encode(image).decode()}"
