"""The tokenizer of a local model, from one ``tokenizer.json``, and an approximation for remote models."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tokenizers import Encoding, Tokenizer as FastTokenizer, normalizers

from latent_core.domain.errors import Invalid


class ModelTokenizer:
    """Implements ``Tokenizer``. Thread-safe: nothing changes after it is made."""

    def __init__(self, make: Callable[[], FastTokenizer]) -> None:
        """``make`` is called once, at first use: a large vocabulary takes seconds."""
        self._make = make
        self._making = threading.Lock()
        self._made: FastTokenizer | None = None

    @property
    def _tokenizer(self) -> FastTokenizer:
        with self._making:
            if self._made is None:
                made = self._make()
                made.no_truncation()
                made.no_padding()
                self._made = made
            return self._made

    @classmethod
    def open(cls, path: Path, *, lower: bool = False) -> ModelTokenizer:
        """``lower``: texts are written in lower case before all else."""
        try:
            tokenizer = FastTokenizer.from_file(str(path))
        except Exception as exc:  # the library raises nothing narrower
            raise Invalid(f"the tokenizer {path.name} cannot be read: {exc}") from exc
        if lower:
            own = [tokenizer.normalizer] if tokenizer.normalizer else []
            tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *own])
        return cls(lambda: tokenizer)

    @property
    def special_tokens(self) -> int:
        """Number of special tokens around one text."""
        return self._tokenizer.num_special_tokens_to_add(False)

    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(encoding) for encoding in self._encode(texts)]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        offsets: list[tuple[int, int]] = self._tokenizer.encode(
            text, add_special_tokens=False
        ).offsets
        return offsets

    def ids(self, texts: Sequence[str], window: int) -> list[list[int]]:
        """The model's input: at most ``window`` tokens per text, plus special tokens."""
        encodings = self._encode(texts)
        for encoding in encodings:
            encoding.truncate(window)
        return [self._tokenizer.post_process(encoding).ids for encoding in encodings]

    def _encode(self, texts: Sequence[str]) -> list[Encoding]:
        encodings: list[Encoding] = self._tokenizer.encode_batch_fast(
            list(texts), add_special_tokens=False
        )
        return encodings


_IDEOGRAPHS: Final = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_PIECE: Final = re.compile(
    rf"[A-Za-z]{{1,5}}|[0-9]{{1,3}}|[{_IDEOGRAPHS}]|[^\W{_IDEOGRAPHS}]{{1,2}}|[^\w\s]|\n+"
)


class PieceTokenizer:
    """Implements ``Tokenizer`` with one regular expression."""

    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(_PIECE.findall(text)) for text in texts]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        return [match.span() for match in _PIECE.finditer(text)]
