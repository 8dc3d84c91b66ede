"""One ONNX session: token ids in, unit vectors out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from latent_core.domain.errors import Invalid, Unavailable
from latent_core.domain.vector_types import Matrix
from latent_core.models.embedding.port import unit_rows
from latent_core.models.embedding.reference import Agreement
from latent_core.models.onnx.dense import load_layer
from latent_core.models.onnx.device import Device
from latent_core.models.onnx.folder import TEXT_INPUTS, Pooling, TextSide
from latent_core.models.onnx.session import RUN_ERRORS, open_session

OWN_POOLING: Final = TextSide("model.onnx", "embedding", None, (), 0, 0, 0, lower=False)
"""Of a graph of ours, which pools itself."""
_TYPES: Final = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}

Ids = NDArray[np.integer[Any]]
Rows = NDArray[np.float32]


class Encoder:
    """Blocking and thread-safe: each call runs on its caller's thread."""

    def __init__(
        self,
        folder: Path,
        side: TextSide = OWN_POOLING,
        *,
        name: str,
        threads: int,
        device: Device = Device.CPU,
    ) -> None:
        """Load the model of ``folder``; each call uses ``threads``. ``Invalid`` if it cannot be loaded."""
        self._session = open_session(folder / side.model, name=name, threads=threads, device=device)
        self.device = device
        self.agreement: Agreement | None = None
        self._name = name
        self._side = side
        self._kept: int | None = None
        self._layers = [load_layer(folder, layer) for layer in side.dense]
        self._inputs = {value.name: _TYPES.get(value.type) for value in self._session.get_inputs()}
        if "input_ids" not in self._inputs or not set(self._inputs) <= TEXT_INPUTS:
            raise Invalid(
                f"the model of {name} has the inputs {', '.join(sorted(self._inputs))};"
                f" a text encoder with {', '.join(sorted(TEXT_INPUTS))} is expected"
            )

    def with_dims(self, dims: int) -> Encoder:
        """This encoder, with the first ``dims`` dimensions of its vectors only."""
        self._kept = dims
        return self

    def encode(self, ids: Sequence[Sequence[int]]) -> Matrix:
        """One unit row per text, given as token ids. Padding is masked; texts of different lengths of a graph without a
        mask are run one by one, since padding would change their vectors."""
        if len(set(map(len, ids))) > 1 and "attention_mask" not in self._inputs:
            return np.concatenate([self.encode([own]) for own in ids])
        tokens, mask = _padded(ids, self._side.pad_id)
        given = {
            "input_ids": tokens,
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(tokens),
            "position_ids": np.where(
                mask, np.cumsum(mask, axis=1) - 1 + self._side.first_position, self._side.pad_id
            ),
        }
        feed = {name: given[name].astype(kind or np.int64) for name, kind in self._inputs.items()}
        try:
            (output,) = self._session.run([self._side.output], feed)
        except RUN_ERRORS as exc:
            raise Unavailable(f"{self._name} could not embed: {exc}") from exc
        rows = self._row_per_text(np.asarray(output, np.float32), mask)
        for layer in self._layers:
            rows = layer.apply(rows)
        return unit_rows(rows[:, : self._kept], self._name)

    def _row_per_text(self, output: Rows, mask: Ids) -> Rows:
        if self._side.pooling is not None and output.ndim == 3:
            return pooled(output, mask, self._side.pooling)
        if output.ndim != 2:
            raise Invalid(
                f"the model of {self._name} returns an array of {output.ndim} dimensions, not 2 or 3"
            )
        return output


def _padded(ids: Sequence[Sequence[int]], pad_id: int) -> tuple[Ids, Ids]:
    width = max(map(len, ids))
    tokens = np.full((len(ids), width), pad_id, np.int64)
    mask = np.zeros((len(ids), width), np.int64)
    for row, own in enumerate(ids):
        tokens[row, : len(own)] = own
        mask[row, : len(own)] = 1
    return tokens, mask


def pooled(states: Rows, mask: Ids, pooling: Pooling) -> Rows:
    """One row per text from ``states`` (texts, tokens, dims)."""
    kept = mask[:, :, None].astype(states.dtype)
    rows: Rows
    if pooling is Pooling.CLS:
        rows = states[:, 0]
    elif pooling is Pooling.LAST:
        rows = states[np.arange(len(states)), mask.sum(axis=1) - 1]
    elif pooling is Pooling.MAX:
        rows = np.where(kept > 0, states, -np.inf).max(axis=1)
    else:
        rows = (states * kept).sum(axis=1) / kept.sum(axis=1)
    return rows
