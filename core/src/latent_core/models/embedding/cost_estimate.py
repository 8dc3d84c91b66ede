"""What requests to an embedder cost, by what its server said of those before."""

from __future__ import annotations

from typing import Final

TOKENS_AN_IMAGE: Final = 1000
"""As long as the server has told nothing: about what models of the Qwen2.5-VL kind read of a page."""


class CostEstimate:
    """Tokens told against what we count ourselves: pieces of texts, and pictures."""

    def __init__(self) -> None:
        self._pieces = self._of_texts = 0
        self._images = self._of_images = 0

    def add_texts(self, pieces: int, reported: int) -> None:
        self._pieces += pieces
        self._of_texts += reported

    def add_images(self, images: int, reported: int) -> None:
        self._images += images
        self._of_images += reported

    def tokens(self, pieces: int, images: int) -> int:
        """Of texts of so many pieces, and of pictures."""
        return _measured(pieces, self._of_texts, self._pieces, 1) + _measured(
            images, self._of_images, self._images, TOKENS_AN_IMAGE
        )


def _measured(counted: int, reported: int, sent: int, each: int) -> int:
    return round(counted * reported / sent) if reported and sent else counted * each
