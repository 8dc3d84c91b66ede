"""A repository of an embedder with eight dimensions: each word is looked up in a table, and the mean is taken."""

from __future__ import annotations

import json
from typing import Final

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from latent_core.models.embedding.onnx_format import ElementType, Graph

DIMS: Final = 8
WORDS: Final = ("lamp", "oil", "lens", "brass", "storm", "boat", "keeper", "ledger")


def tiny_repository(seed: int = 7) -> dict[str, bytes]:
    """Its files by path. Another seed gives other vectors."""
    table = np.random.default_rng(seed).normal(size=(len(WORDS) + 4, DIMS)).astype(np.float32)
    graph = Graph("tiny")
    for name in ("input_ids", "attention_mask"):
        graph.input(name, ElementType.INT64, ["texts", "tokens"])
    graph.node("Gather", [graph.constant("table", table), "input_ids"], "last_hidden_state")
    graph.output("last_hidden_state", ElementType.FLOAT, ["texts", "tokens", DIMS])
    vocabulary = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3}
    vocabulary |= {word: 4 + number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return {
        "config.json": json.dumps(
            {"hidden_size": DIMS, "max_position_embeddings": 64, "architectures": ["BertModel"]}
        ).encode(),
        "tokenizer.json": tokenizer.to_str().encode(),
        "onnx/model.onnx": graph.model(),
        "1_Pooling/config.json": b'{"pooling_mode_mean_tokens": true}',
        "pytorch_model.bin": b"pickle",
        "modeling_tiny.py": b"raise SystemExit",
    }
