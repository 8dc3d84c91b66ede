"""Which files of a model's repository are needed: one ONNX file per side, its weights, settings and the tokenizer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from latent_core.domain.errors import Invalid
from latent_core.models.onnx.graph import ModelPrecision

TOKENIZER: Final = "tokenizer.json"
CONFIG: Final = "config.json"
MODULES: Final = "modules.json"
PROMPTS: Final = "config_sentence_transformers.json"
TRANSFORMER: Final = "sentence_bert_config.json"
TOKENIZER_CONFIG: Final = "tokenizer_config.json"
PREPROCESSOR: Final = "preprocessor_config.json"
_SETTINGS: Final = (CONFIG, MODULES, PROMPTS, TRANSFORMER, TOKENIZER_CONFIG, PREPROCESSOR)
_MODULE_FILE: Final = re.compile(r"\d{1,2}_[A-Za-z]{1,32}/(?:config\.json|model\.safetensors)")
_ONNX: Final = re.compile(
    r"(?:onnx/)?(?P<side>text_model|vision_model|model)(?P<suffix>[_-][A-Za-z0-9_-]+)?\.onnx"
)
_SUFFIXES: Final = (
    (re.compile(r"(?:_fp32)?"), ModelPrecision.FP32),
    (re.compile(r"_fp16"), ModelPrecision.FP16),
    (re.compile(r"_bf16"), ModelPrecision.BF16),
    (re.compile(r"_(?:int8|uint8|quantized|quint8.*|qint8.*)"), ModelPrecision.INT8),
    (re.compile(r"_(?:q4|q4f16|bnb4|int4)"), ModelPrecision.INT4),
)
_BY_ITSELF: Final = (ModelPrecision.FP32, ModelPrecision.FP16, ModelPrecision.BF16)
"""Precisions taken if none is named, the best first. Quantised weights give other vectors: never by themselves."""
PICTURES: Final = "vision"
"""Folder of the second half of a pair, which has the pictures."""
MAX_JSON: Final = 4 * 1024 * 1024
EXPORT: Final = "export it: optimum-cli export onnx --model <hub id> <folder> (package optimum-onnx), then name the folder"


class ListedFile(Protocol):
    @property
    def path(self) -> str: ...
    @property
    def size(self) -> int: ...


def files_needed(
    listing: Sequence[ListedFile], precision: ModelPrecision | None = None
) -> list[str]:
    """Paths of a repository's listing that its model consists of.

    ``precision`` chooses among several ONNX files; by default the one of full precision. ``Invalid`` if there is
    none, or no tokenizer.
    """
    paths = {file.path for file in listing}
    graphs = chosen_graphs(paths, precision)
    if TOKENIZER not in paths and (PREPROCESSOR not in paths or "text" in graphs):
        raise Invalid(
            f"the repository has no {TOKENIZER}: save it with AutoTokenizer.from_pretrained(<hub id>,"
            " use_fast=True).save_pretrained(<folder>)"
        )
    needed: set[str] = {name for name in (TOKENIZER, *_SETTINGS) if name in paths}
    needed |= {path for path in paths if _MODULE_FILE.fullmatch(path)}
    for graph in graphs.values():
        needed |= {graph, *_external(graph, paths)}
    return sorted(needed)


def picture_files_needed(
    listing: Sequence[ListedFile], precision: ModelPrecision | None = None
) -> list[str]:
    """As ``files_needed``, of a repository of which only the pictures are used: the second half of a pair."""
    paths = {file.path for file in listing}
    if PREPROCESSOR not in paths:
        raise Invalid(
            f"the repository has no {PREPROCESSOR}, so it embeds no pictures: name the model of pictures with --with,"
            " and the model of texts first"
        )
    graph = picture_graph(paths, precision)
    settings = {name for name in (PREPROCESSOR, CONFIG) if name in paths}
    return sorted({*settings, graph, *_external(graph, paths)})


def picture_graph(
    paths: Iterable[str], precision: ModelPrecision | None = None, *, of_record: bool = False
) -> str:
    """The ONNX file of the pictures, also of a repository that has texts and pictures."""
    graphs = chosen_graphs(paths, precision, of_record=of_record)
    return graphs.get("vision") or graphs.get("model") or graphs["text"]


def chosen_graphs(
    paths: Iterable[str], precision: ModelPrecision | None = None, *, of_record: bool = False
) -> dict[str, str]:
    """The ONNX file of each side: ``text`` and ``vision`` of a pair, else ``model``. ``of_record``: ``precision`` was
    read from the weights, so a single file is the one, whatever its name says."""
    found: dict[str, dict[ModelPrecision, str]] = {}
    onnx = sorted(path for path in paths if path.endswith(".onnx"))
    # A file at the top wins over one in the folder onnx.
    for path in sorted(onnx, key=lambda path: path.count("/"), reverse=True):
        match = _ONNX.fullmatch(path)
        kind = _precision_of(match["suffix"] or "") if match else None
        if match and kind:
            side = match["side"].removesuffix("_model")
            found.setdefault(side, {})[kind] = path
    of_pair = [side for side in ("text", "vision") if side in found]
    sides: list[str] = [*of_pair] or ["model"]
    if "model" in sides and "model" not in found:
        if len(onnx) == 1:
            return {"model": onnx[0]}
        raise Invalid(_no_onnx(onnx))
    return {
        side: next(iter(found[side].values()))
        if of_record and len(found[side]) == 1
        else _of_precision(found[side], precision)
        for side in sides
    }


def _precision_of(suffix: str) -> ModelPrecision | None:
    return next((kind for pattern, kind in _SUFFIXES if pattern.fullmatch(suffix)), None)


def _no_onnx(onnx: Sequence[str]) -> str:
    if onnx:
        return f"the repository has {len(onnx)} ONNX files, none of them model.onnx or onnx/model.onnx; {EXPORT}"
    return f"the repository has no ONNX weights (no model.onnx, no onnx/model.onnx): {EXPORT}"


def _of_precision(found: dict[ModelPrecision, str], precision: ModelPrecision | None) -> str:
    order = (precision,) if precision else _BY_ITSELF
    for kind in order:
        if kind in found:
            return found[kind]
    if precision and list(found) == [ModelPrecision.FP32]:
        # Many repositories name half precision and even quantised weights model.onnx: the weights say what they are.
        return found[ModelPrecision.FP32]
    there = ", ".join(f"{path} ({kind})" for kind, path in found.items())
    if precision:
        raise Invalid(f"the repository has no weights of precision {precision}; it has {there}")
    raise Invalid(
        f"the repository has quantised weights only: {there}. Their vectors differ from those of full precision:"
        " name the precision to use them"
    )


def _external(graph: str, paths: set[str]) -> list[str]:
    """Weights next to a graph: ``model.onnx_data``, ``model.onnx.data``, ``model.onnx_data_1``."""
    of_graph = re.compile(re.escape(graph) + r"[._]data(?:_\d{1,3})?")
    return [path for path in paths if of_graph.fullmatch(path)]


def paths_below(folder: Path) -> list[str]:
    """Relative names of the files of ``folder`` and of the folders in it. Links are followed: a person made them."""
    paths = (*folder.glob("*"), *folder.glob("*/*"))
    return [path.relative_to(folder).as_posix() for path in paths if path.is_file()]


def read_json(folder: Path, name: str) -> Any:
    """Content of a settings file; None when it is missing."""
    path = folder / name
    if not path.is_file():
        return None
    try:
        if path.stat().st_size > MAX_JSON:
            raise Invalid(f"{name} is larger than {MAX_JSON} bytes")
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as exc:
        raise Invalid(f"{name} cannot be read: {exc}") from exc


def read_settings(folder: Path, name: str) -> dict[str, Any]:
    """A settings file that is an object; empty when it is missing."""
    read = read_json(folder, name)
    if read is None:
        return {}
    if not isinstance(read, dict):
        raise Invalid(f"{name} is not an object")
    return read
