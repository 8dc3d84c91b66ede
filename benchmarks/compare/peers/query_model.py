"""The same model for every peer: the files that an installation of ours has made, run by onnxruntime."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np

from benchmarks.compare.peers.port import Vector


class QueryModel:
    """One thread per query, as in our gateway."""

    def __init__(self, model: Path, tokenizer: Path) -> None:
        runtime = importlib.import_module("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = runtime.InferenceSession(str(model), options)
        self._inputs = {one.name for one in self._session.get_inputs()}
        self._tokenizer = importlib.import_module("tokenizers").Tokenizer.from_file(str(tokenizer))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(256)

    def embed(self, text: str) -> Vector:
        """A unit vector."""
        ids = np.array([self._tokenizer.encode(text).ids], np.int64)
        given = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.zeros_like(ids),
            "position_ids": np.arange(ids.shape[1])[None],
        }
        feed = {name: value for name, value in given.items() if name in self._inputs}
        row: Vector = np.asarray(self._session.run(["embedding"], feed)[0][0], np.float32)
        return row / np.float32(np.linalg.norm(row))
