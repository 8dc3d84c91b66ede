"""One ONNX session: token ids in, unit vectors out."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as runtime

from latent_core.domain.errors import Invalid, Unavailable
from latent_core.domain.vector_types import Matrix
from latent_core.models.embedding.port import unit_rows

_CANNOT_LOAD: Final = (
    runtime.Fail,
    runtime.InvalidArgument,
    runtime.InvalidGraph,
    runtime.InvalidProtobuf,
    runtime.NoSuchFile,
    runtime.NotImplemented,
    runtime.RuntimeException,
)
_CANNOT_RUN: Final = (runtime.Fail, runtime.InvalidArgument, runtime.RuntimeException)


class Pooling(StrEnum):
    """How token vectors are combined into a text's vector."""

    MEAN = "mean"
    CLS = "cls"
    LAST = "last"


class Encoder:
    """Blocking and thread-safe: each call runs on its caller's thread."""

    def __init__(self, path: Path, *, name: str, pooling: Pooling, threads: int) -> None:
        """Load the model at ``path``; each call uses ``threads``. ``Invalid`` if it cannot be loaded."""
        try:
            self._session = onnxruntime.InferenceSession(
                str(path), _options(threads), providers=["CPUExecutionProvider"]
            )
        except _CANNOT_LOAD as exc:
            raise Invalid(f"the model of {name} cannot be loaded: {exc}") from exc
        self._name = name
        self._pooling = pooling
        self._inputs = {value.name for value in self._session.get_inputs()}
        unknown = self._inputs - {"input_ids", "attention_mask", "token_type_ids"}
        if unknown or "input_ids" not in self._inputs:
            raise Invalid(
                f"the model of {name} has the inputs {', '.join(sorted(self._inputs))};"
                " a text encoder with input_ids, attention_mask and token_type_ids is expected"
            )

    def encode(self, ids: Sequence[Sequence[int]]) -> Matrix:
        """One unit row per text, given as token ids. Padding is masked."""
        tokens, mask = _padded(ids)
        given = {
            "input_ids": tokens,
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(tokens),
        }
        try:
            outputs: list[NDArray[Any]] = self._session.run(
                None, {name: given[name] for name in self._inputs}
            )
        except _CANNOT_RUN as exc:
            raise Unavailable(f"{self._name} could not embed: {exc}") from exc
        return unit_rows(_pooled(outputs, mask, self._pooling, self._name), self._name)


def _options(threads: int) -> Any:
    """Concurrent runs share the session's arena, which takes less memory than separate heaps. Sizes vary too much
    for a memory pattern. Threads stop spinning when a run ends."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.enable_mem_pattern = False
    options.log_severity_level = 3
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options


def _padded(ids: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    width = max(map(len, ids))
    tokens = np.zeros((len(ids), width), np.int64)
    mask = np.zeros((len(ids), width), np.int64)
    for row, own in enumerate(ids):
        tokens[row, : len(own)] = own
        mask[row, : len(own)] = 1
    return tokens, mask


def _pooled(
    outputs: Sequence[NDArray[Any]], mask: NDArray[np.int64], pooling: Pooling, name: str
) -> NDArray[np.floating]:
    """One row per text: the model's own if it pools, else pooled from its first output (texts, tokens, dims)."""
    for output in outputs:
        if output.ndim == 2:
            return output
    states: NDArray[np.floating] = outputs[0]
    if states.ndim != 3:
        raise Invalid(
            f"the model of {name} returns an array of {states.ndim} dimensions, not 2 or 3"
        )
    weights = mask[:, :, None].astype(states.dtype)
    if pooling is Pooling.MEAN:
        pooled: NDArray[np.floating] = (states * weights).sum(axis=1) / weights.sum(axis=1)
    elif pooling is Pooling.CLS:
        pooled = states[:, 0]
    else:
        pooled = states[np.arange(len(states)), mask.sum(axis=1) - 1]
    return pooled
