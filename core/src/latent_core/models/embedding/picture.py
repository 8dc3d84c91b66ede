"""What is embedded of a chunk: its text, or the picture it is.

A chunk of modality image is the picture of its page. An embedder that reads pictures is sent it; one that does
not, or as long as nobody has drawn it, the text beside it.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from latent_core.domain.errors import Invalid
from latent_core.domain.ids import Sha256
from latent_core.models.embedding.port import EmbeddingModel, Tokenizer
from latent_core.models.embedding.windows import windows

_MAGIC: Final = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (8, b"WEBP", "image/webp"),
)


@dataclass(frozen=True, slots=True)
class StoredImage:
    """A stored picture, by the hash of its bytes."""

    sha256: Sha256


Piece = str | StoredImage
"""What one vector is made of."""
ReadPicture = Callable[[Sha256], Awaitable[bytes]]


def pieces(
    text: str, picture: str | None, tokenizer: Tokenizer, model: EmbeddingModel
) -> list[Piece]:
    """What ``model`` is sent of a chunk: ``picture``, the hash of the page it is, or ``text`` in windows."""
    if picture is not None and model.reads_images:
        return [StoredImage(Sha256(picture))]
    return list(windows(text, tokenizer, model.window))


def media_type(image: bytes) -> str:
    """Of a picture that embedders read; ``Invalid`` for any other."""
    for at, magic, kind in _MAGIC:
        if image.startswith(magic, at):
            return kind
    raise Invalid("an embedder reads pictures as PNG, JPEG or WebP: convert this one")


def as_data_url(image: bytes) -> str:
    return f"data:{media_type(image)};base64,{b64encode(image).decode()}"
