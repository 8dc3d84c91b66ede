"""Embedders from a folder with an ONNX model: a user's own, ``local:<folder>``, or one that is installed."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import Final

from latent_core.domain.errors import Invalid
from latent_core.domain.manifest.model import LOCAL_FOLDER, WITH_IMAGES, is_of_images
from latent_core.models.embedding.loader import FolderLoader
from latent_core.models.embedding.local import LocalModel, Prompts
from latent_core.models.embedding.port import EmbeddingModel, prefixes_of
from latent_core.models.embedding.reference import Reference
from latent_core.models.embedding.tokens import ModelTokenizer
from latent_core.models.onnx.files import PROMPTS, TOKENIZER
from latent_core.models.onnx.folder import ModelDescription, describe
from latent_core.models.onnx.graph import ModelPrecision, read_graph

PREFIX: Final = LOCAL_FOLDER
_SAMPLE: Final = 64 * 1024
_SAMPLES: Final = 64

logger = logging.getLogger(__name__)


def from_folder(name: str, dims: int | None = None) -> LocalModel:
    """The model in the folder of ``name`` (``local:<folder>``), not loaded yet. Blocks for some milliseconds.

    ``Invalid`` names a file that is missing or unusable.
    """
    root = Path(name.removeprefix(PREFIX))
    if not root.is_absolute():
        raise Invalid(f"{name}: the folder must be an absolute path")
    try:
        described = describe(root)
    except Invalid as exc:
        raise Invalid(f"{name}: {exc.message}") from exc
    return local_model(name, f"{root.name}@{digest_of(described)}", described, dims)


def local_model(
    name: str,
    version: str,
    described: ModelDescription,
    dims: int | None = None,
    reference: Reference | None = None,
) -> LocalModel:
    """The embedder ``name`` of a described folder, not loaded yet. ``dims`` keeps the first dimensions only.
    ``reference``: what it must compute."""
    if described.kind == "reranker" or described.text is None or described.dims is None:
        raise Invalid(
            f"{name} is a {described.kind.replace('_', ' ')}: it gives no vectors for texts"
        )
    if dims is not None and dims > described.dims:
        raise Invalid(f"dims is {dims}, but {name} has {described.dims}: remove dims, or set fewer")
    kept = dims or described.dims
    if kept < described.dims and kept not in described.matryoshka:
        logger.warning(
            "dims_not_stated", extra={"embedder": name, "kept_dims": kept, "dims": described.dims}
        )
    loader = loader_of(name, described, kept, reference)
    images = described.images
    if images is not None:
        version += "" if is_of_images(version) else WITH_IMAGES
        if kept < described.dims:
            raise Invalid(
                f"{name} embeds texts and pictures in {described.dims} dimensions: remove dims"
            )
    model = EmbeddingModel(
        name,
        version,
        kept,
        loader.window,
        reads_images=images is not None,
    )
    return LocalModel(
        model,
        loader.tokenizer,
        loader.texts,
        loader.prompts,
        load_images=loader.pictures if images else None,
        # Activations are quantised with one scale per run, so other texts of it would change a vector.
        alone=described.precision is ModelPrecision.INT8,
    )


def loader_of(
    name: str,
    described: ModelDescription,
    kept: int | None = None,
    reference: Reference | None = None,
) -> FolderLoader:
    """Reads the tokenizer. ``kept`` dimensions, by default all."""
    text, dims = described.text, kept or described.dims
    assert text is not None
    assert dims is not None
    tokenizer = ModelTokenizer.open(
        described.folder / TOKENIZER, lower=text.lower, padding=text.padding, pad_id=text.pad_id
    )
    window = text.length - tokenizer.special_tokens
    prompts = _prompts(name, described)
    return FolderLoader(name, described, dims, tokenizer, prompts, window, reference)


def _prompts(name: str, described: ModelDescription) -> Prompts:
    """Those of its files, else the known ones of a family whose files do not name them."""
    if described.prompts:
        return Prompts(described.prompts.get("document", ""), described.prompts.get("query", ""))
    known = prefixes_of(name)
    return Prompts(known.document, known.query)


def digest_of(described: ModelDescription) -> str:
    """Digest of all files that determine a vector. Large files are sampled: another model differs everywhere.

    The first files are always those of the first release, so that its vectors stay searchable.
    """
    assert described.text is not None
    digest = hashlib.blake2b(digest_size=6)
    root, graph = described.folder, described.folder / described.text.model
    data = sorted(graph.parent.glob("model.onnx[._]data*"))
    first = [graph, *data, *(root / n for n in (TOKENIZER, "1_Pooling/config.json", PROMPTS))]
    later = [
        root / n for n in described.files if root / n not in first and n not in _WITHOUT_EFFECT
    ]
    for path in (*first, *later):
        size = path.stat().st_size if path.is_file() else 0
        digest.update(f"{path.name} {size}\n".encode())
        if size:
            _add_samples(digest, path, size)
    if described.text.pooling is not None and any(
        len(v.dims) == 2 for v in read_graph(graph).outputs
    ):
        digest.update(b"token vectors")  # the first release took the output with a row per text
    if described.text.lower:
        digest.update(b"lower case")  # so did it read texts as they are
    if described.text.padding is not None:
        digest.update(b"fixed length")
    return digest.hexdigest()


def _add_samples(digest: hashlib.blake2b, path: Path, size: int) -> None:
    with path.open("rb") as file:
        for start in range(0, size, max(_SAMPLE, size // _SAMPLES)):
            file.seek(start)
            digest.update(file.read(_SAMPLE))


_WITHOUT_EFFECT: Final = frozenset({"modules.json", "sentence_bert_config.json"})
"""Settings that change the window or repeat what other files say."""
