"""``local:<folder>``: a model of the user's own, as its publisher lays it out.

``model.onnx`` (or ``onnx/model.onnx``), ``tokenizer.json`` and ``config.json`` are needed. What stands
beside them as in sentence-transformers is heeded: pooling, window and prompts; without it, mean
pooling, the model's own length and no prompts.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from latent_core.domain.errors import Invalid
from latent_core.domain.manifest.embedder_name import LOCAL_FOLDER
from latent_core.models.embedding.encoder import Encoder, Pooling
from latent_core.models.embedding.local import LocalModel, Prompts
from latent_core.models.embedding.port import EmbeddingModel
from latent_core.models.embedding.tokens import ModelTokenizer

PREFIX: Final = LOCAL_FOLDER
DEFAULT_LENGTH: Final = 512
_LONGEST: Final = 32_768
"""Publishers write absurd numbers for "no limit"."""
_POOLING: Final = {
    "pooling_mode_mean_tokens": Pooling.MEAN,
    "pooling_mode_cls_token": Pooling.CLS,
    "pooling_mode_lasttoken": Pooling.LAST,
}
_POOLING_FILE: Final = "1_Pooling/config.json"
_PROMPTS_FILE: Final = "config_sentence_transformers.json"
_WIDTHS: Final = ((_POOLING_FILE, "word_embedding_dimension"), ("config.json", "hidden_size"))
_SAMPLE: Final = 64 * 1024
_SAMPLES: Final = 64
_LENGTHS: Final = (
    ("sentence_bert_config.json", "max_seq_length"),
    ("tokenizer_config.json", "model_max_length"),
    ("config.json", "max_position_embeddings"),
)


@dataclass(frozen=True, slots=True)
class _OnnxFolder:
    root: Path
    name: str
    """As in the manifest."""

    @property
    def model_file(self) -> Path:
        places = (self.root / "model.onnx", self.root / "onnx" / "model.onnx")
        return next((place for place in places if place.is_file()), places[0])

    def config(self, name: str) -> dict[str, Any]:
        """A configuration file; empty when it is not there."""
        path = self.root / name
        if not path.is_file():
            return {}
        try:
            read = json.loads(path.read_bytes())
        except (OSError, ValueError) as exc:
            raise Invalid(f"{self.name}: {name} cannot be read: {exc}") from exc
        if not isinstance(read, dict):
            raise Invalid(f"{self.name}: {name} is not an object")
        return read

    def length(self) -> int:
        """Tokens of one text, special ones counted: the least that a file names."""
        named = [self.config(file).get(key) for file, key in _LENGTHS]
        sane = [int(n) for n in named if isinstance(n, int | float) and 0 < n <= _LONGEST]
        return min(sane, default=DEFAULT_LENGTH)

    def pooling(self) -> Pooling:
        config = self.config(_POOLING_FILE)
        chosen = [
            key for key, value in config.items() if key.startswith("pooling_mode") and value is True
        ]
        if not chosen:
            return Pooling.MEAN
        if len(chosen) > 1 or chosen[0] not in _POOLING:
            raise Invalid(
                f"{self.name}: {_POOLING_FILE} asks for {', '.join(chosen)};"
                f" one of {', '.join(_POOLING)} is supported"
            )
        return _POOLING[chosen[0]]

    def prompts(self) -> Prompts:
        prompts = self.config(_PROMPTS_FILE).get("prompts")
        if not isinstance(prompts, dict):
            return Prompts()
        document = prompts.get("document") or prompts.get("passage") or ""
        return Prompts(str(document), str(prompts.get("query") or ""))

    def dims(self) -> int:
        """Width of the vectors, as a configuration file tells."""
        for file, key in _WIDTHS:
            if isinstance(width := self.config(file).get(key), int):
                return width
        raise Invalid(f"{self.name}: no config.json tells hidden_size, the width of the vectors")

    def digest(self) -> str:
        """Of everything that decides a vector. Of large files, samples: a trained model differs everywhere."""
        digest = hashlib.blake2b(digest_size=6)
        data = sorted(self.model_file.parent.glob("model.onnx[._]data*"))
        configs = (self.root / file for file in (_POOLING_FILE, _PROMPTS_FILE))
        for path in (self.model_file, *data, self.root / "tokenizer.json", *configs):
            size = path.stat().st_size if path.is_file() else 0
            digest.update(f"{path.name} {size}\n".encode())
            if size:
                _add_samples(digest, path, size)
        return digest.hexdigest()


def _add_samples(digest: hashlib.blake2b, path: Path, size: int) -> None:
    with path.open("rb") as file:
        for start in range(0, size, max(_SAMPLE, size // _SAMPLES)):
            file.seek(start)
            digest.update(file.read(_SAMPLE))


def from_folder(name: str) -> LocalModel:
    """The model that ``name`` (``local:<folder>``) speaks of, not loaded yet. Blocking, some milliseconds.

    ``Invalid`` says which file is missing or cannot be used.
    """
    folder = _OnnxFolder(Path(name.removeprefix(PREFIX)), name)
    if not folder.root.is_absolute():
        raise Invalid(f"{name}: name the folder by its absolute path")
    for path in (folder.model_file, folder.root / "tokenizer.json"):
        if not path.is_file():
            raise Invalid(f"{name}: there is no {path.name} in that folder")
    tokenizer = ModelTokenizer.open(folder.root / "tokenizer.json")
    window = folder.length() - tokenizer.special_tokens
    version = f"{folder.root.name}@{folder.digest()}"
    model = EmbeddingModel(name, version, folder.dims(), window)
    load = partial(_load, folder.model_file, model, folder.pooling())
    return LocalModel(model, tokenizer, load, folder.prompts())


def _load(path: Path, model: EmbeddingModel, pooling: Pooling, threads: int) -> Encoder:
    encoder = Encoder(path, name=model.embedder, pooling=pooling, threads=threads)
    dims = encoder.encode([[0]]).shape[1]
    if dims != model.dims:
        raise Invalid(
            f"{model.embedder}: its configuration tells {model.dims} dimensions, its model answers {dims}"
        )
    return encoder
