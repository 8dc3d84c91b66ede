"""Small transformer encoders as ONNX folders, written with the product's graph builder, and the same in plain numpy.

The numpy side computes one text at a time, without padding, and shares nothing with the graphs but the weights.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import erf
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from latent_core.models.embedding.onnx_format import ElementType, Graph

DIMS, HEADS, LAYERS, VOCABULARY, LENGTH = 16, 2, 2, 40, 64
HEAD = DIMS // HEADS
PROJECTED = 8
SIDE, PATCH = 8, 4
"""Pixels of a picture and of a patch."""
WORDS = (
    {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3}
    | {chr(97 + n): 4 + n for n in range(26)}
    | {"red": 30, "green": 31, "blue": 32, "query:": 33, "text:": 34}
)

Floats = NDArray[np.float32]


class Positions(StrEnum):
    LEARNED = "learned"
    """Of BERT, with types of tokens."""
    AFTER_PADDING = "after padding"
    """Of XLM-R: counted from the tokens that are no padding, the first is the padding's id + 1."""
    GIVEN = "given"
    """An input of the graph."""
    ROTARY = "rotary"
    """Of ModernBERT and Nomic-BERT."""


@dataclass
class EncoderWeights:
    """Random weights of a seed."""

    positions: Positions
    seed: int = 7
    tensors: dict[str, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)

        def normal(name: str, *shape: int, scale: float = 0.4) -> None:
            self.tensors[name] = rng.normal(0, scale, shape).astype(np.float32)

        normal("words", VOCABULARY, DIMS, scale=1.0)
        normal("positions", LENGTH + 8, DIMS, scale=1.0)
        normal("types", 2, DIMS, scale=1.0)
        for layer in range(LAYERS):
            for part in ("q", "k", "v", "o"):
                normal(f"{layer}.{part}", DIMS, DIMS)
                normal(f"{layer}.{part}.bias", DIMS)
            normal(f"{layer}.up", DIMS, 2 * DIMS)
            normal(f"{layer}.down", 2 * DIMS, DIMS)
            for norm in ("norm1", "norm2"):
                normal(f"{layer}.{norm}", DIMS)
                normal(f"{layer}.{norm}.bias", DIMS)
        normal("projection", DIMS, PROJECTED)
        normal("pixels", PROJECTED, 3, PATCH, PATCH)
        normal("score", DIMS, 1)

    # The same model in numpy.

    def states(self, ids: Sequence[int], types: Sequence[int] | None = None) -> Floats:
        """(tokens, dims) of one text."""
        w, count = self.tensors, len(ids)
        x = w["words"][list(ids)]
        if self.positions is Positions.AFTER_PADDING:
            x = x + w["positions"][[n + 2 for n in range(count)]]
        elif self.positions is not Positions.ROTARY:
            x = x + w["positions"][:count]
        if self.positions is Positions.LEARNED:
            x = x + w["types"][list(types or [0] * count)]
        for layer in range(LAYERS):
            x = self._layer(x, layer)
        return x

    def _layer(self, x: Floats, layer: int) -> Floats:
        w = self.tensors
        q, k, v = (x @ w[f"{layer}.{p}"] + w[f"{layer}.{p}.bias"] for p in "qkv")
        mixed = np.zeros_like(x)
        for head in range(HEADS):
            own = slice(head * HEAD, (head + 1) * HEAD)
            query, key = q[:, own], k[:, own]
            if self.positions is Positions.ROTARY:
                query, key = (
                    np.stack([_turned(row, n) for n, row in enumerate(m)]) for m in (query, key)
                )
            odds = np.exp(query @ key.T / np.sqrt(HEAD))
            mixed[:, own] = odds / odds.sum(axis=1, keepdims=True) @ v[:, own]
        x = _normed(x + mixed @ w[f"{layer}.o"] + w[f"{layer}.o.bias"], w, f"{layer}.norm1")
        up = x @ w[f"{layer}.up"]
        gelu = up * 0.5 * (1 + np.vectorize(erf)(up / np.sqrt(2)))
        return _normed(x + gelu @ w[f"{layer}.down"], w, f"{layer}.norm2")

    def picture(self, pixels: Floats) -> Floats:
        """The vector of (3, side, side) pixels: the mean over patches of a linear map."""
        parts = [
            (self.tensors["pixels"] * pixels[:, y : y + PATCH, x : x + PATCH]).sum(axis=(1, 2, 3))
            for y in range(0, SIDE, PATCH)
            for x in range(0, SIDE, PATCH)
        ]
        return np.asarray(np.mean(parts, axis=0), np.float32)


def _turned(row: Floats, position: int) -> Floats:
    """Rotary positions: pairs (n, n + half) are turned by an angle."""
    half = HEAD // 2
    out = row.copy()
    for n in range(half):
        angle = position * 10_000 ** (-n / half)
        a, b = row[n], row[n + half]
        out[n] = a * np.cos(angle) - b * np.sin(angle)
        out[n + half] = b * np.cos(angle) + a * np.sin(angle)
    return out


def _normed(x: Floats, w: dict[str, Floats], name: str) -> Floats:
    centred = x - x.mean(axis=1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
    return np.asarray(scaled * w[name] + w[f"{name}.bias"], np.float32)


class _EncoderGraph:
    """Builds the graph of ``EncoderWeights``."""

    def __init__(self, weights: EncoderWeights) -> None:
        self.weights = weights
        self.graph = Graph("encoder")
        self._count = 0

    def number(self, value: object, dtype: type = np.float32) -> str:
        self._count += 1
        return self.graph.constant(f"c{self._count}", np.array(value, dtype))

    def op(self, operator: str, *inputs: str, **attributes: int | float | Sequence[int]) -> str:
        self._count += 1
        return self.graph.node(operator, list(inputs), f"n{self._count}", **attributes)  # type: ignore[arg-type]

    def tensor(self, name: str) -> str:
        return self.number(self.weights.tensors[name])

    def states(self, *, masked: bool = True) -> str:
        """The last hidden states; declares the inputs. Without a mask, padding is read as any token."""
        g, positions = self.graph, self.weights.positions
        names = ["input_ids", *(["attention_mask"] if masked else [])]
        names += ["token_type_ids"] if positions is Positions.LEARNED else []
        names += ["position_ids"] if positions is Positions.GIVEN else []
        for name in names:
            g.input(name, ElementType.INT64, ["texts", "tokens"])
        x = self.op("Gather", self.tensor("words"), "input_ids")
        one = self.number([1], np.int64)
        count = self.op("Gather", self.op("Shape", "input_ids"), one)
        places = self.op("Range", self.number([0], np.int64), count, one)
        if positions is Positions.AFTER_PADDING:
            padding = self.op("Equal", "input_ids", one)
            real = self.op("Cast", self.op("Not", padding), to=7)
            summed = self.op("CumSum", real, self.number(1, np.int64))
            places = self.op("Add", self.op("Mul", summed, real), one)
        elif positions is Positions.GIVEN:
            places = "position_ids"
        elif positions is Positions.LEARNED:
            all_places = self.number([list(range(LENGTH))], np.int64)
            places = self.op("Slice", all_places, self.number([0], np.int64), count, one)
        if positions is not Positions.ROTARY:
            x = self.op("Add", x, self.op("Gather", self.tensor("positions"), places))
        if positions is Positions.LEARNED:
            x = self.op("Add", x, self.op("Gather", self.tensor("types"), "token_type_ids"))
        mask = self.number(0.0)
        if masked:
            hidden = self.op("Sub", self.number(1.0), self.op("Cast", "attention_mask", to=1))
            wide = self.op("Unsqueeze", hidden, self.number([1, 2], np.int64))
            mask = self.op("Mul", wide, self.number(-1e9))
        for layer in range(LAYERS):
            x = self.layer(x, layer, mask, places)
        return x

    def layer(self, x: str, layer: int, mask: str, places: str) -> str:
        split = self.number([0, 0, HEADS, HEAD], np.int64)
        q, k, v = (
            self.op(
                "Transpose",
                self.op("Reshape", self.linear(x, f"{layer}.{p}"), split),
                perm=[0, 2, 1, 3],
            )
            for p in "qkv"
        )
        if self.weights.positions is Positions.ROTARY:
            q, k = self.turned(q, places), self.turned(k, places)
        product = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.op("Add", self.op("Div", product, self.number(np.sqrt(HEAD))), mask)
        mixed = self.op("MatMul", self.op("Softmax", scores, axis=-1), v)
        whole = self.op(
            "Reshape",
            self.op("Transpose", mixed, perm=[0, 2, 1, 3]),
            self.number([0, 0, DIMS], np.int64),
        )
        x = self.norm(self.op("Add", x, self.linear(whole, f"{layer}.o")), f"{layer}.norm1")
        up = self.op("MatMul", x, self.tensor(f"{layer}.up"))
        bent = self.op("Erf", self.op("Div", up, self.number(np.sqrt(2))))
        gelu = self.op(
            "Mul", self.op("Mul", up, self.number(0.5)), self.op("Add", bent, self.number(1.0))
        )
        down = self.op("MatMul", gelu, self.tensor(f"{layer}.down"))
        return self.norm(self.op("Add", x, down), f"{layer}.norm2")

    def linear(self, x: str, name: str) -> str:
        return self.op("Add", self.op("MatMul", x, self.tensor(name)), self.tensor(f"{name}.bias"))

    def norm(self, x: str, name: str) -> str:
        return self.op(
            "LayerNormalization",
            x,
            self.tensor(name),
            self.tensor(f"{name}.bias"),
            axis=-1,
            epsilon=1e-5,
        )

    def turned(self, x: str, places: str) -> str:
        half = HEAD // 2
        angles = np.arange(LENGTH)[:, None] * 10_000 ** (-np.arange(half) / half)
        angles = np.concatenate([angles, angles], axis=1)
        cos, sin = (self.op("Gather", self.number(f(angles)), places) for f in (np.cos, np.sin))
        ends = [self.number([n], np.int64) for n in (0, half, HEAD, -1)]
        first = self.op("Slice", x, ends[0], ends[1], ends[3])
        second = self.op("Slice", x, ends[1], ends[2], ends[3])
        swapped = self.op("Concat", self.op("Neg", second), first, axis=-1)
        return self.op("Add", self.op("Mul", x, cos), self.op("Mul", swapped, sin))

    def finished(self, value: str, name: str, dims: Sequence[int | str]) -> bytes:
        self.graph.node("Identity", [value], name)
        self.graph.output(name, ElementType.FLOAT, dims)
        return self.graph.model()

    def token(self, states: str, place: int) -> str:
        one = self.op("Gather", states, self.number([place], np.int64), axis=1)
        return self.op("Squeeze", one, self.number([1], np.int64))


def write_tokenizer(folder: Path) -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel(WORDS, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


def write_json(folder: Path, name: str, content: object) -> None:
    (folder / name).parent.mkdir(exist_ok=True, parents=True)
    (folder / name).write_text(json.dumps(content), encoding="utf-8")


def write_text_encoder(folder: Path, weights: EncoderWeights) -> None:
    """Token vectors, as an export for feature extraction gives them."""
    built = _EncoderGraph(weights)
    model = built.finished(built.states(), "last_hidden_state", ["texts", "tokens", DIMS])
    (folder / "onnx").mkdir(exist_ok=True)
    (folder / "onnx" / "model.onnx").write_bytes(model)
    write_tokenizer(folder)
    after = weights.positions is Positions.AFTER_PADDING
    kind = "xlm-roberta" if after else "bert"
    config = {"hidden_size": DIMS, "max_position_embeddings": LENGTH, "model_type": kind}
    write_json(folder, "config.json", {**config, "pad_token_id": 1 if after else 0})


def write_cross_encoder(folder: Path, weights: EncoderWeights) -> None:
    built = _EncoderGraph(weights)
    score = built.op("MatMul", built.token(built.states(), 0), built.tensor("score"))
    (folder / "model.onnx").write_bytes(built.finished(score, "logits", ["texts", 1]))
    write_tokenizer(folder)
    config = {"architectures": ["BertForSequenceClassification"], "max_position_embeddings": LENGTH}
    write_json(folder, "config.json", config)


PREPROCESSING = {
    "image_processor_type": "CLIPImageProcessor",
    "do_resize": True,
    "size": {"shortest_edge": SIDE},
    "resample": 3,
    "do_center_crop": True,
    "crop_size": {"height": SIDE, "width": SIDE},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.48, 0.46, 0.41],
    "image_std": [0.27, 0.26, 0.28],
}


def _pictures(weights: EncoderWeights, output: str) -> bytes:
    built = _EncoderGraph(weights)
    built.graph.input("pixel_values", ElementType.FLOAT, ["pictures", 3, SIDE, SIDE])
    patches = built.op(
        "Conv",
        "pixel_values",
        built.tensor("pixels"),
        kernel_shape=[PATCH, PATCH],
        strides=[PATCH, PATCH],
    )
    flat = built.op("Reshape", patches, built.number([0, 0, -1], np.int64))
    mean = built.op("ReduceMean", flat, axes=[2], keepdims=0)
    return built.finished(mean, output, ["pictures", PROJECTED])


def write_clip(folder: Path, weights: EncoderWeights) -> None:
    """A pair of text_model.onnx and vision_model.onnx with one space."""
    (folder / "onnx").mkdir(exist_ok=True, parents=True)
    built = _EncoderGraph(weights)
    text = built.op("MatMul", built.token(built.states(), 0), built.tensor("projection"))
    model = built.finished(text, "text_embeds", ["texts", PROJECTED])
    (folder / "onnx" / "text_model.onnx").write_bytes(model)
    model = _pictures(weights, "image_embeds")
    (folder / "onnx" / "vision_model.onnx").write_bytes(model)
    write_tokenizer(folder)
    write_json(
        folder,
        "config.json",
        {"model_type": "clip", "text_config": {"max_position_embeddings": LENGTH}},
    )
    write_json(folder, "preprocessor_config.json", PREPROCESSING)


def write_siglip(folder: Path, weights: EncoderWeights, *, second: bool) -> None:
    """As the two releases of SigLIP: no mask, texts of ``LENGTH`` tokens whose last one is pooled, padding included.
    ``second``: the tokenizer says how it pads, and with which token; else only the settings name it."""
    (folder / "onnx").mkdir(exist_ok=True, parents=True)
    built = _EncoderGraph(weights)
    last = built.token(built.states(masked=False), LENGTH - 1)
    text = built.op("MatMul", last, built.tensor("projection"))
    model = built.finished(text, "pooler_output", ["texts", PROJECTED])
    (folder / "onnx" / "text_model.onnx").write_bytes(model)
    model = _pictures(weights, "pooler_output")
    (folder / "onnx" / "vision_model.onnx").write_bytes(model)
    tokenizer = write_tokenizer(folder)
    pad = "[PAD]" if second else "[SEP]"
    if second:
        tokenizer.enable_padding(length=LENGTH, pad_id=WORDS[pad], pad_token=pad)
        tokenizer.save(str(folder / "tokenizer.json"))
    longest = 10**30 if second else LENGTH
    write_json(folder, "tokenizer_config.json", {"pad_token": pad, "model_max_length": longest})
    write_json(folder, "config.json", {"model_type": "siglip", "text_config": {}})
    settings = {
        "image_processor_type": "SiglipImageProcessor",
        "size": {"height": SIDE, "width": SIDE},
        "resample": 2 if second else 3,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
    }
    write_json(folder, "preprocessor_config.json", settings)
