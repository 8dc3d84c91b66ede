"""Repositories of an embedder with eight dimensions: each word is looked up in a table, and the mean is taken.

The model of pictures sees one thing, the mean colour: red is near the word lamp, green near oil, blue near boat.
"""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from latent_core.models.embedding.onnx_format import ElementType, Graph

DIMS: Final = 8
SIDE: Final = 8
WORDS: Final = ("lamp", "oil", "lens", "brass", "storm", "boat", "keeper", "ledger")


def table_of(seed: int) -> NDArray[np.float32]:
    """The vectors of the special tokens and of the words."""
    return np.random.default_rng(seed).normal(size=(len(WORDS) + 4, DIMS)).astype(np.float32)


def tiny_repository(seed: int = 7) -> dict[str, bytes]:
    """Its files by path. Another seed gives other vectors."""
    table = table_of(seed)
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


def looked_up(table: NDArray[Any]) -> bytes:
    """The graph of another table, in its precision."""
    graph = Graph("table")
    for name in ("input_ids", "attention_mask"):
        graph.input(name, ElementType.INT64, ["texts", "tokens"])
    graph.node("Gather", [graph.constant("table", table), "input_ids"], "rows")
    graph.node("Cast", ["rows"], "last_hidden_state", to=ElementType.FLOAT.value)
    graph.output("last_hidden_state", ElementType.FLOAT, ["texts", "tokens", DIMS])
    return graph.model()


def tiny_half(seed: int = 7) -> bytes:
    """The graph of ``tiny_repository`` in fp16."""
    return looked_up(table_of(seed).astype(np.float16))


def colour_vectors(seed: int = 7) -> NDArray[np.float32]:
    """Of pictures that are red, green and blue: those of the words, with the special tokens around them."""
    table = table_of(seed)
    words = table[[4 + WORDS.index(word) for word in ("lamp", "oil", "boat")]]
    return np.asarray((words + table[2] + table[3]) / 3, np.float32)


def tiny_pictures(seed: int = 7, dims: int = DIMS) -> dict[str, bytes]:
    """A repository of pictures alone, in the space of ``tiny_repository``. As in nomic-embed-vision, a picture's vector
    is the first of ``last_hidden_state``, the size is given as height and width, and the width of vectors as n_embd."""
    colours = np.resize(colour_vectors(seed), (3, dims)).astype(np.float32)
    graph = Graph("pictures")
    graph.input("pixel_values", ElementType.FLOAT, ["pictures", 3, SIDE, SIDE])
    graph.node("ReduceMean", ["pixel_values"], "means", axes=[2, 3], keepdims=0)
    graph.node("MatMul", ["means", graph.constant("colours", colours)], "seen")
    graph.node("Unsqueeze", ["seen", graph.constant("one", np.array([1]))], "first")
    graph.node("Mul", ["first", graph.constant("away", np.array(-3, np.float32))], "other")
    graph.node("Concat", ["first", "other"], "last_hidden_state", axis=1)
    graph.output("last_hidden_state", ElementType.FLOAT, ["pictures", "patches", "width"])
    settings = {
        "image_processor_type": "CLIPImageProcessor",
        "size": {"height": SIDE, "width": SIDE},
        "do_center_crop": False,
        "image_mean": [0, 0, 0],
        "image_std": [1, 1, 1],
    }
    return {
        "config.json": json.dumps({"model_type": "nomic_bert", "n_embd": dims}).encode(),
        "preprocessor_config.json": json.dumps(settings).encode(),
        "onnx/model.onnx": graph.model(),
        "modeling_tiny.py": b"raise SystemExit",
    }
