"""A cross-encoder: pairs of query and text in, relevance out.

Its files are described by ``models.onnx.folder``. A pair has at most as many tokens as they say, else 512. **Longer
pairs are cut**: the query to half of that, the text to the rest. So the end of a long chunk is not scored: chunks of
the default size (600 tokens) lose their last part with a model of 512.

The model returns one number per pair, or two, where the second one is for relevance. Either is converted to a
probability, 0..1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from latent_core.domain.errors import Invalid, Unavailable
from latent_core.models.onnx.files import TOKENIZER
from latent_core.models.onnx.folder import (
    TEXT_INPUTS,
    ModelDescription,
    ModelPrecision,
    TextSide,
    describe,
)
from latent_core.models.onnx.session import RUN_ERRORS, open_on_first_device

QUERY_SHARE: Final = 0.5
_TYPES: Final = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}

Ids = NDArray[np.int64]


def reranker_of(
    folder: Path, setting: str, precision: ModelPrecision | None = None
) -> ModelDescription:
    """The description of a cross-encoder's folder. ``Invalid`` begins with ``setting``, which names the folder."""
    try:
        described = describe(folder, precision)
    except Invalid as exc:
        raise Invalid(f"{setting}: {exc.message}") from exc
    if described.kind != "reranker":
        raise Invalid(
            f"{setting}: the model is an {described.kind.replace('_', ' ')}, which gives vectors; a cross-encoder gives one"
            " or two numbers per pair (output logits)"
        )
    return described


@dataclass(frozen=True, slots=True)
class Pair:
    """Token ids of a query and a text; ``types`` says which token belongs to which."""

    ids: list[int]
    types: list[int]


class PairTokenizer:
    """Pairs of at most ``length`` tokens."""

    def __init__(self, path: Path, length: int) -> None:
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as exc:  # the library raises nothing narrower
            raise Invalid(f"the local reranker's {path.name} cannot be used: {exc}") from exc
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._max_tokens = length - self._tokenizer.num_special_tokens_to_add(True)
        if self._max_tokens < 2:
            raise Invalid(
                f"the local reranker reads {length} tokens, which is too few for a query and a text"
            )

    def pairs(self, query: str, texts: Sequence[str]) -> list[Pair]:
        """``query`` with each text, cut to the limit."""
        first = self._tokenizer.encode(query, add_special_tokens=False)
        first.truncate(int(self._max_tokens * QUERY_SHARE))
        left = self._max_tokens - len(first)
        seconds: list[Encoding] = self._tokenizer.encode_batch_fast(
            list(texts), add_special_tokens=False
        )
        return [self._pair(first, second, left) for second in seconds]

    def _pair(self, first: Encoding, second: Encoding, left: int) -> Pair:
        second.truncate(left)
        whole = self._tokenizer.post_process(first, second)
        return Pair(whole.ids, whole.type_ids)


class CrossEncoder:
    """A loaded model. Blocking and thread-safe: each run uses its caller's thread."""

    def __init__(self, described: ModelDescription) -> None:
        """``Invalid`` when it cannot be loaded."""
        assert described.text is not None
        self._side = described.text
        self.tokenizer = PairTokenizer(described.folder / TOKENIZER, self._side.length)
        self._session = open_on_first_device(
            described.folder / self._side.model, name="the local reranker", threads=1
        )
        self._inputs = {value.name: _TYPES.get(value.type) for value in self._session.get_inputs()}

    def probabilities(self, pairs: Sequence[Pair]) -> list[float]:
        """The probability that each text answers its query, 0..1. Padding is masked."""
        given = _padded(pairs, self._side)
        feed = {name: given[name].astype(kind or np.int64) for name, kind in self._inputs.items()}
        try:
            (logits,) = self._session.run([self._side.output], feed)
        except RUN_ERRORS as exc:
            raise Unavailable(f"the local reranker could not run: {exc}") from exc
        evidence = _evidence(np.asarray(logits, np.float64), len(pairs))
        if not np.isfinite(evidence).all():
            raise Invalid("the local reranker returned a score that is not a finite number")
        # The logistic function, without overflow on either side.
        found: list[float] = (0.5 * (1.0 + np.tanh(0.5 * evidence))).tolist()
        return found


def _padded(pairs: Sequence[Pair], side: TextSide) -> dict[str, Ids]:
    shape = (len(pairs), max(len(pair.ids) for pair in pairs))
    given = {name: np.zeros(shape, np.int64) for name in TEXT_INPUTS}
    given["input_ids"] += side.pad_id
    given["position_ids"] += side.pad_id
    for row, pair in enumerate(pairs):
        end = len(pair.ids)
        given["input_ids"][row, :end] = pair.ids
        given["token_type_ids"][row, :end] = pair.types
        given["attention_mask"][row, :end] = 1
        given["position_ids"][row, :end] = np.arange(end) + side.first_position
    return given


def _evidence(logits: NDArray[np.float64], pairs: int) -> NDArray[np.float64]:
    """Log-odds per pair: the one number, or the second minus the first."""
    if logits.shape in ((pairs,), (pairs, 1)):
        return logits.reshape(pairs)
    if logits.shape == (pairs, 2):
        return np.asarray(logits[:, 1] - logits[:, 0])
    raise Invalid(
        f"the local reranker returns the shape {logits.shape} for {pairs} pairs;"
        " expected are one or two numbers per pair"
    )
