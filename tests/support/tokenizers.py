"""Tokenizers for tests, small enough to be counted by hand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from typing_extensions import override

_TOKEN: Final = re.compile(r"\w{1,6}|[^\w\s]")


class WordPieceTokenizer:
    """Counts like WordPiece: words in pieces of six letters, each other character alone."""

    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(_TOKEN.findall(text)) for text in texts]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        return [match.span() for match in _TOKEN.finditer(text)]


class CharacterTokenizer(WordPieceTokenizer):
    """Counts white space too, so that a text costs more than its words."""

    @override
    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(_TOKEN.findall(text)) + text.count(" ") + text.count("\n") for text in texts]
