"""A cross-encoder from its publisher's folder: pairs of query and text in, relevance out.

The folder has ``model.onnx`` (or ``onnx/model.onnx``) and ``tokenizer.json``. A pair has at most as many tokens
as the smaller limit in ``tokenizer_config.json`` and ``config.json``, else 512. **Longer pairs are cut**: the query
to half of that, the text to the rest. So the end of a long chunk is not scored: chunks of the default size
(600 tokens) lose their last part with a model of 512.

The model returns one number per pair, or two, where the second one is for relevance. Either is converted to a
probability, 0..1.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as runtime
from tokenizers import Encoding, Tokenizer

from latent_core.domain.errors import Invalid, Unavailable

DEFAULT_LENGTH: Final = 512
QUERY_SHARE: Final = 0.5
_LONGEST: Final = 32_768
"""Some publishers write huge numbers for "no limit"."""
_LENGTHS: Final = (
    ("tokenizer_config.json", "model_max_length"),
    ("config.json", "max_position_embeddings"),
)
_INPUTS: Final = frozenset({"input_ids", "attention_mask", "token_type_ids"})
_RUNTIME_ERRORS: Final = (
    runtime.Fail,
    runtime.InvalidArgument,
    runtime.InvalidGraph,
    runtime.InvalidProtobuf,
    runtime.NoSuchFile,
    runtime.NotImplemented,
    runtime.RuntimeException,
)

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CrossEncoderFolder:
    """The files of a model; required ones are checked at once."""

    root: Path

    def __post_init__(self) -> None:
        for path in (self.model_file, self.tokenizer_file):
            if not path.is_file():
                raise Invalid(f"LLC_RERANK_FOLDER: the folder has no {path.name}")

    @property
    def model_file(self) -> Path:
        places = (self.root / "model.onnx", self.root / "onnx" / "model.onnx")
        return next((place for place in places if place.is_file()), places[0])

    @property
    def tokenizer_file(self) -> Path:
        return self.root / "tokenizer.json"

    def length(self) -> int:
        """Tokens per pair, with special ones."""
        named = [self._config(file).get(key) for file, key in _LENGTHS]
        sane = [int(n) for n in named if isinstance(n, int | float) and 0 < n <= _LONGEST]
        return min(sane, default=DEFAULT_LENGTH)

    def _config(self, name: str) -> dict[str, Any]:
        """A configuration file; empty when it is missing."""
        path = self.root / name
        if not path.is_file():
            return {}
        try:
            read = json.loads(path.read_bytes())
        except (OSError, ValueError) as exc:
            raise _unusable(path, exc) from exc
        if not isinstance(read, dict):
            raise Invalid(f"LLC_RERANK_FOLDER: {name} is not an object")
        return read


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
            raise _unusable(path, exc) from exc
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._max_tokens = length - self._tokenizer.num_special_tokens_to_add(True)
        if self._max_tokens < 2:
            raise Invalid(f"LLC_RERANK_FOLDER: {length} tokens are too few for a query and a text")

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

    def __init__(self, folder: CrossEncoderFolder) -> None:
        """``Invalid`` when it is not a cross-encoder."""
        self.tokenizer = PairTokenizer(folder.tokenizer_file, folder.length())
        try:
            self._session = onnxruntime.InferenceSession(
                str(folder.model_file), _options(), providers=["CPUExecutionProvider"]
            )
        except _RUNTIME_ERRORS as exc:
            raise _unusable(folder.model_file, exc) from exc
        self._inputs = {value.name for value in self._session.get_inputs()}
        if "input_ids" not in self._inputs or not self._inputs <= _INPUTS:
            raise Invalid(
                f"LLC_RERANK_FOLDER: the model has the inputs {', '.join(sorted(self._inputs))};"
                f" a cross-encoder has {', '.join(sorted(_INPUTS))}"
            )
        outputs = [value.name for value in self._session.get_outputs()]
        self._output = "logits" if "logits" in outputs else outputs[0]

    def probabilities(self, pairs: Sequence[Pair]) -> list[float]:
        """The probability that each text answers its query, 0..1. Padding is masked."""
        given = _padded(pairs)
        try:
            (logits,) = self._session.run(
                [self._output], {name: given[name] for name in self._inputs}
            )
        except _RUNTIME_ERRORS as exc:
            raise Unavailable(f"the local reranker could not run: {exc}") from exc
        evidence = _evidence(np.asarray(logits, np.float64), len(pairs))
        if not np.isfinite(evidence).all():
            raise Invalid("the local reranker returned a score that is not a finite number")
        # The logistic function, without overflow on either side.
        found: list[float] = (0.5 * (1.0 + np.tanh(0.5 * evidence))).tolist()
        return found


def _unusable(path: Path, exc: Exception) -> Invalid:
    """The error for a file, without the server's paths, since users of the search see it."""
    reason = str(exc).replace(str(path.parent), "…")
    return Invalid(f"LLC_RERANK_FOLDER: {path.name} cannot be used: {reason}")


def _options() -> Any:
    """Sizes vary too much for a memory pattern."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.enable_mem_pattern = False
    options.log_severity_level = 3
    return options


def _padded(pairs: Sequence[Pair]) -> dict[str, Ids]:
    shape = (len(pairs), max(len(pair.ids) for pair in pairs))
    given = {name: np.zeros(shape, np.int64) for name in _INPUTS}
    for row, pair in enumerate(pairs):
        end = len(pair.ids)
        given["input_ids"][row, :end] = pair.ids
        given["token_type_ids"][row, :end] = pair.types
        given["attention_mask"][row, :end] = 1
    return given


def _evidence(logits: NDArray[np.float64], pairs: int) -> NDArray[np.float64]:
    """Log-odds per pair: the one number, or the second minus the first."""
    if logits.shape in ((pairs,), (pairs, 1)):
        return logits.reshape(pairs)
    if logits.shape == (pairs, 2):
        return np.asarray(logits[:, 1] - logits[:, 0])
    raise Invalid(
        f"LLC_RERANK_FOLDER: the model returns the shape {logits.shape} for {pairs} pairs;"
        " expected are one or two numbers per pair"
    )
