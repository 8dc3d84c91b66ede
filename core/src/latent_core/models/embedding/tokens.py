"""The tokenizer of a local model, from one ``tokenizer.json``, and an approximation for remote models."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tokenizers import Encoding, Tokenizer as FastTokenizer, normalizers

from latent_core.domain.errors import Invalid
from latent_core.models.onnx.folder import Padding


class ModelTokenizer:
    """Implements ``Tokenizer``. Thread-safe: nothing changes after it is made."""

    def __init__(
        self, make: Callable[[], FastTokenizer], padding: tuple[int, int] | None = None
    ) -> None:
        """``make`` is called once, at first use: a large vocabulary takes seconds. ``padding``: the number of tokens
        that each text gets, and the token behind shorter ones, for models that read their padding."""
        self._make = make
        self._padding = padding
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
    def open(
        cls, path: Path, *, lower: bool = False, padding: Padding | None = None, pad_id: int = 0
    ) -> ModelTokenizer:
        """``lower``: texts are written in lower case before all else. ``pad_id``: of ``padding``, unless the tokenizer
        knows its token."""
        try:
            tokenizer = FastTokenizer.from_file(str(path))
        except Exception as exc:  # the library raises nothing narrower
            raise Invalid(f"the tokenizer {path.name} cannot be read: {exc}") from exc
        if lower:
            own = [tokenizer.normalizer] if tokenizer.normalizer else []
            tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *own])
        return cls(lambda: tokenizer, _fixed(tokenizer, padding, pad_id) if padding else None)

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
        ids = [self._tokenizer.post_process(encoding).ids for encoding in encodings]
        if self._padding is None:
            return ids
        length, token = self._padding
        return [[*own, *[token] * (length - len(own))] for own in ids]

    def _encode(self, texts: Sequence[str]) -> list[Encoding]:
        encodings: list[Encoding] = self._tokenizer.encode_batch_fast(
            list(texts), add_special_tokens=False
        )
        return encodings


def _fixed(tokenizer: FastTokenizer, padding: Padding, pad_id: int) -> tuple[int, int]:
    """What the tokenizer's own settings say, else its pad token, else ``pad_id``."""
    own = tokenizer.padding or {}
    if own.get("length"):
        return min(own["length"], padding.length), own["pad_id"]
    found = tokenizer.token_to_id(padding.token) if padding.token is not None else None
    return padding.length, pad_id if found is None else found


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
