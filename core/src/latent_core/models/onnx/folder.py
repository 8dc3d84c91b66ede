"""What the files of a model's folder say: which vectors or scores it gives, and how its texts and pictures are read.

The folder is a repository of sentence-transformers or transformers with ONNX weights, from a hub or of a user's own.
Only its JSON, ONNX and safetensors files are opened; code in it is never run, since an ONNX graph is complete.

An embedder's vector per text is, in this order: the output ``sentence_embedding`` or ``text_embeds`` of the graph,
which includes all modules; its token vectors, pooled and sent through the Dense layers as ``modules.json`` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Literal

from latent_core.domain.errors import Invalid
from latent_core.models.onnx.files import (
    CONFIG,
    MODULES,
    PICTURES,
    PREPROCESSOR,
    PROMPTS,
    TOKENIZER,
    TOKENIZER_CONFIG,
    TRANSFORMER,
    chosen_graphs,
    files_needed,
    paths_below,
    picture_graph,
    read_json,
    read_settings,
)
from latent_core.models.onnx.graph import GraphValue, ModelPrecision, OnnxGraph, read_graph
from latent_core.models.onnx.pixels import PreprocessingSteps, preprocessing_of

__all__ = ["ModelDescription", "ModelPrecision", "describe", "files_needed"]

DEFAULT_LENGTH: Final = 512
_LONGEST: Final = 32_768
"""Some publishers write huge numbers for "no limit"."""
TEXT_INPUTS: Final = frozenset({"input_ids", "attention_mask", "token_type_ids", "position_ids"})
_POSITIONS_AFTER_PADDING: Final = frozenset(
    {"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet", "longformer"}
)
"""Model types whose first position is the id of padding + 1: so many positions fewer can be used."""
_SIGLIP: Final = "siglip"
"""Begin of model types that read padding: each text has the same number of tokens."""
_SIGLIP_TOKENS: Final = 64
"""What these models were trained with."""
_PROJECTED: Final = {
    "clip": ("text_embeds", "image_embeds"),
    _SIGLIP: ("text_embeds", "image_embeds", "pooler_output"),
}
"""Outputs in the space of texts and pictures, by the begin of the model type. Others are taken as they come."""
_WHOLE: Final = ("sentence_embedding", "text_embeds")
_STATES: Final = ("last_hidden_state", "token_embeddings", "hidden_states")
_PICTURE: Final = ("image_embeds", "pooler_output", "last_hidden_state")


class Pooling(StrEnum):
    """How token vectors are combined into a text's vector."""

    MEAN = "mean"
    CLS = "cls"
    LAST = "last"
    MAX = "max"


_POOLINGS: Final = {
    "pooling_mode_mean_tokens": Pooling.MEAN,
    "pooling_mode_cls_token": Pooling.CLS,
    "pooling_mode_lasttoken": Pooling.LAST,
    "pooling_mode_max_tokens": Pooling.MAX,
    "mean": Pooling.MEAN,
    "cls": Pooling.CLS,
    "lasttoken": Pooling.LAST,
    "max": Pooling.MAX,
}
"""By the key of the older format of ``1_Pooling/config.json`` and by the value of the newer one."""


class Activation(StrEnum):
    IDENTITY = "Identity"
    TANH = "Tanh"
    RELU = "ReLU"


@dataclass(frozen=True, slots=True)
class DenseLayer:
    """A linear layer after pooling; ``file`` is relative to the folder."""

    file: str
    dims: int
    activation: Activation


@dataclass(frozen=True, slots=True)
class Padding:
    """Each text has so many tokens."""

    length: int
    token: str | None
    """By its text; None: the tokenizer's own, or ``pad_id``."""


@dataclass(frozen=True, slots=True)
class TextSide:
    """How texts become vectors, or pairs of texts scores."""

    model: str
    """The ONNX file, relative to the folder, as all names here."""
    output: str
    pooling: Pooling | None
    """None if the output has one row per text."""
    dense: tuple[DenseLayer, ...]
    length: int
    """Tokens per text, with special ones."""
    first_position: int
    """Of the input ``position_ids``, if the graph has it."""
    pad_id: int
    lower: bool
    """Whether texts are written in lower case before they are tokenised."""
    padding: Padding | None = None
    """Of a model that reads its padding."""


@dataclass(frozen=True, slots=True)
class ImageSide:
    """How pictures become vectors."""

    model: str
    output: str
    pooling: Pooling | None
    preprocessing: PreprocessingSteps


@dataclass(frozen=True, slots=True)
class ModelDescription:
    kind: Literal["embedder", "image_embedder", "reranker"]
    folder: Path
    text: TextSide | None
    """None for the picture half of a pair whose texts another model embeds."""
    images: ImageSide | None
    dims: int | None
    """None for a reranker."""
    precision: ModelPrecision
    normalised: bool
    """Whether the model itself gives unit vectors. Ours always have unit length."""
    prompts: Mapping[str, str]
    """Before a ``document`` and before a ``query``; empty if the files name none."""
    matryoshka: tuple[int, ...]
    """Shorter dimensions that the model was trained for."""
    files: tuple[str, ...]
    """All that determine a vector."""
    remarks: tuple[str, ...] = ()
    """What a person should know: what the files leave open."""

    @property
    def window(self) -> int | None:
        """Tokens per text, with special ones; None without a text side."""
        return self.text.length if self.text else None


def describe(
    folder: Path,
    precision: ModelPrecision | None = None,
    prompts: Mapping[str, str] | None = None,
) -> ModelDescription:
    """Read the settings and the graph of a model's folder, not its weights. Blocks for some milliseconds.

    ``precision`` chooses among several ONNX files, as in ``files_needed``; a single file is taken whatever its name says,
    since many repositories name fp16 or quantised weights ``model.onnx``. ``prompts`` replace those of the files.
    ``Invalid`` names file, cause and remedy.
    """
    of_record = precision is not None
    own = [path for path in paths_below(folder) if not path.startswith(f"{PICTURES}/")]
    graphs = chosen_graphs(own, precision, of_record=of_record)
    described = _Folder(folder, graphs, prompts).described()
    if not (folder / PICTURES / PREPROCESSOR).is_file():
        return described
    graph = picture_graph(paths_below(folder / PICTURES), precision, of_record=of_record)
    pictures = _Folder(folder / PICTURES, {"vision": graph}).described()
    return _pair(described, pictures)


def _pair(texts: ModelDescription, pictures: ModelDescription) -> ModelDescription:
    """One embedder of a model of texts and of the pictures in its folder ``vision``."""
    if texts.kind != "embedder" or texts.text is None or pictures.images is None:
        raise Invalid(
            f"the folder has {PICTURES}/{PREPROCESSOR}, but its own model is no embedder of texts alone: the model of"
            f" texts comes first, that of pictures below {PICTURES}"
        )
    if texts.dims != pictures.dims:
        raise Invalid(
            f"{texts.text.model} gives {texts.dims} dimensions, but {PICTURES}/{pictures.images.model}"
            f" {pictures.dims}: they are no pair"
        )
    if texts.precision is not pictures.precision:
        raise Invalid(
            f"{texts.text.model} has weights in {texts.precision}, but {PICTURES}/{pictures.images.model} in"
            f" {pictures.precision}: a pair has one precision; choose it with --precision"
        )
    images = replace(pictures.images, model=f"{PICTURES}/{pictures.images.model}")
    return replace(
        texts,
        kind="image_embedder",
        images=images,
        files=(*texts.files, *(f"{PICTURES}/{name}" for name in pictures.files)),
    )


@dataclass(slots=True)
class _Folder:
    root: Path
    graphs: Mapping[str, str]
    given: Mapping[str, str] | None = None
    _remarks: list[str] = field(default_factory=list)
    _files: list[str] = field(default_factory=list)

    def described(self) -> ModelDescription:
        if "model" in self.graphs:
            graph = self._graph(self.graphs["model"])
            if "pixel_values" in graph.input_names:
                return self._pictures(None, self.graphs["model"])
            if self._is_reranker(graph):
                return self._reranker(graph)
            return self._embedder(graph)
        return self._pictures(self.graphs.get("text"), self.graphs.get("vision"))

    def _graph(self, name: str) -> OnnxGraph:
        graph = read_graph(self.root / name)
        parent = Path(name).parent
        for file in (name, *(str(parent / data) for data in graph.external)):
            path = self.root / file
            if not path.resolve().is_relative_to(self.root.resolve()):
                raise Invalid(
                    f"{file} is a link to a file outside of the folder: put the file itself there"
                )
            if not path.is_file():
                raise Invalid(
                    f"the folder has no {file}, where {name} keeps its weights: fetch or copy it"
                )
            self._files.append(file)
        return graph

    def _is_reranker(self, graph: OnnxGraph) -> bool:
        logits = graph.output("logits")
        architectures = read_settings(self.root, CONFIG).get("architectures")
        named = isinstance(architectures, list) and any(
            str(name).endswith("ForSequenceClassification") for name in architectures
        )
        return named or (logits is not None and len(logits.dims) <= 2 and not self._modules())

    def _reranker(self, graph: OnnxGraph) -> ModelDescription:
        value = graph.output("logits") or graph.outputs[0]
        if len(value.dims) > 2:
            raise Invalid(
                f"{self.graphs['model']} returns {_shape(value)}: a cross-encoder returns one or two numbers per pair;"
                " export it with --task text-classification"
            )
        text = self._text_side(graph, self.graphs["model"], value, None, ())
        return self._description("reranker", graph, text=text)

    def _embedder(self, graph: OnnxGraph) -> ModelDescription:
        self._check_modules()
        value, pools = _text_output(graph, self.graphs["model"])
        pooling = self._pooling() if pools else None
        dense = self._dense() if value.name not in _WHOLE else ()
        text = self._text_side(graph, self.graphs["model"], value, pooling, dense)
        dims = self._dims(value, dense)
        return self._description("embedder", graph, text=text, dims=dims)

    def _pictures(self, text: str | None, vision: str | None) -> ModelDescription:
        if vision is None:
            raise Invalid("the folder has text_model.onnx, but no vision_model.onnx: fetch both")
        graph = self._graph(vision)
        if graph.input_names != {"pixel_values"}:
            raise Invalid(
                f"{vision} has the inputs {', '.join(sorted(graph.input_names))}: a picture encoder has pixel_values"
                " alone; export text_model.onnx and vision_model.onnx separately"
            )
        value = next((v for name in _PICTURE if (v := graph.output(name))), graph.outputs[0])
        self._check_projected(vision, value)
        pooling = Pooling.CLS if len(value.dims) == 3 else None
        config = read_settings(self.root, PREPROCESSOR)
        if not config:
            raise Invalid(
                f"the folder has no {PREPROCESSOR}: it says how pictures are scaled and cut"
            )
        images = ImageSide(vision, value.name, pooling, preprocessing_of(config))
        side = dims = None
        if text is not None:
            own = self._graph(text)
            stated, pools = _text_output(own, text, pair=True)
            self._check_projected(text, stated)
            side = self._text_side(own, text, stated, self._pooling() if pools else None, ())
            dims = self._dims(stated, ())
            if value.dims and value.dims[-1] not in (None, dims):
                raise Invalid(
                    f"{vision} gives {value.dims[-1]} dimensions, but {text} {dims}: they are no pair"
                )
        dims = dims or self._dims(value, ())
        return self._description("image_embedder", graph, text=side, images=images, dims=dims)

    def _check_projected(self, model: str, value: GraphValue) -> None:
        kind = str(read_settings(self.root, CONFIG).get("model_type", ""))
        names = next((own for begin, own in _PROJECTED.items() if kind.startswith(begin)), None)
        if names is not None and value.name not in names:
            raise Invalid(
                f"{model} returns {_shape(value)}, which is not in the space of texts and pictures of {kind}: export"
                f" it with one of the outputs {', '.join(names)}"
            )

    def _description(
        self,
        kind: Literal["embedder", "image_embedder", "reranker"],
        graph: OnnxGraph,
        *,
        text: TextSide | None = None,
        images: ImageSide | None = None,
        dims: int | None = None,
    ) -> ModelDescription:
        settings = [
            name
            for name in (PROMPTS, MODULES, TRANSFORMER, PREPROCESSOR)
            if (self.root / name).is_file()
        ]
        if text:
            settings.append(TOKENIZER)
        return ModelDescription(
            kind=kind,
            folder=self.root,
            text=text,
            images=images,
            dims=dims,
            precision=graph.precision,
            normalised=any(kind == "Normalize" for kind, _ in self._modules()),
            prompts=self._prompts() if text else {},
            matryoshka=self._matryoshka(dims),
            files=tuple(sorted({*self._files, *settings})),
            remarks=tuple(self._remarks),
        )

    def _text_side(
        self,
        graph: OnnxGraph,
        model: str,
        value: GraphValue,
        pooling: Pooling | None,
        dense: tuple[DenseLayer, ...],
    ) -> TextSide:
        inputs = graph.input_names
        if "input_ids" not in inputs or not inputs <= TEXT_INPUTS:
            raise Invalid(
                f"{model} has the inputs {', '.join(sorted(inputs))}: a text encoder has input_ids and at most"
                f" {', '.join(sorted(TEXT_INPUTS - {'input_ids'}))}"
            )
        if not (self.root / TOKENIZER).is_file():
            raise Invalid(f"the folder has no {TOKENIZER}")
        config = self._text_config()
        shifted = config.get("model_type") in _POSITIONS_AFTER_PADDING
        pad = config.get("pad_token_id")
        pad_id = pad if isinstance(pad, int) and not isinstance(pad, bool) and pad >= 0 else 0
        first = pad_id + 1 if shifted else 0
        padded = str(config.get("model_type", "")).startswith(_SIGLIP)
        lower = padded or read_settings(self.root, TRANSFORMER).get("do_lower_case") is True
        length = self._length(first, _SIGLIP_TOKENS if padded else DEFAULT_LENGTH)
        padding = Padding(length, self._pad_token()) if padded else None
        return TextSide(model, value.name, pooling, dense, length, first, pad_id, lower, padding)

    def _pad_token(self) -> str | None:
        stated = read_settings(self.root, TOKENIZER_CONFIG).get("pad_token")
        token = stated.get("content") if isinstance(stated, dict) else stated
        return token if isinstance(token, str) else None

    def _text_config(self) -> dict[str, Any]:
        config = read_settings(self.root, CONFIG)
        inner = config.get("text_config")
        return {**config, **inner} if isinstance(inner, dict) else config

    def _length(self, first: int, default: int) -> int:
        """Tokens per text: what sentence-transformers sets, else the tokenizer, and at most the positions."""
        positions = _count(self._text_config().get("max_position_embeddings"))
        stated = [
            _count(read_settings(self.root, TRANSFORMER).get("max_seq_length")),
            _count(read_settings(self.root, TOKENIZER_CONFIG).get("model_max_length")),
        ]
        known = [length for length in stated if length]
        if positions:
            known.append(positions - first)
        return min(known, default=default)

    def _modules(self) -> list[tuple[str, str]]:
        """Kind and folder of each module of sentence-transformers, in order."""
        read = read_json(self.root, MODULES)
        if read is None:
            return []
        if not isinstance(read, list) or not all(
            isinstance(module, dict) and isinstance(module.get("type"), str) for module in read
        ):
            raise Invalid(f"{MODULES} is not a list of modules with a type")
        return [(m["type"].rpartition(".")[2], str(m.get("path", ""))) for m in read]

    def _check_modules(self) -> None:
        kinds = [kind for kind, _ in self._modules()]
        for kind in kinds:
            if kind not in ("Transformer", "Pooling", "Dense", "Normalize"):
                raise Invalid(
                    f"{MODULES} names the module {kind}, which is not supported; known are Transformer, Pooling,"
                    " Dense and Normalize: export the whole model with --library sentence_transformers"
                )
        order = ["Transformer", "Pooling", "Dense", "Normalize"]
        places = [order.index(kind) for kind in kinds]
        if places != sorted(places) or kinds.count("Pooling") > 1:
            raise Invalid(
                f"{MODULES} has the order {', '.join(kinds)}; supported is {', '.join(order)}"
            )

    def _folder_of(self, kind: str) -> str | None:
        return next((path for own, path in self._modules() if own == kind), None)

    def _pooling(self) -> Pooling:
        place = self._folder_of("Pooling") or "1_Pooling"
        name = f"{_plain(place)}/config.json"
        config = read_settings(self.root, name)
        stated = config.get("pooling_mode")
        if isinstance(stated, str | list):
            chosen = [stated] if isinstance(stated, str) else [str(mode) for mode in stated]
        else:
            chosen = [
                key
                for key, value in config.items()
                if key.startswith("pooling_mode") and value is True
            ]
        if not chosen:
            self._remarks.append(f"there is no {name}: the mean of the token vectors is taken")
            return Pooling.MEAN
        if len(chosen) > 1 or chosen[0] not in _POOLINGS:
            raise Invalid(
                f"{name} sets {', '.join(chosen)}; supported is exactly one of mean, cls, lasttoken and max:"
                " export the whole model with --library sentence_transformers"
            )
        if config.get("include_prompt") is False and any(self._prompts().values()):
            raise Invalid(f"{name} sets include_prompt to false, which is not supported")
        self._files.append(name)
        return _POOLINGS[chosen[0]]

    def _dense(self) -> tuple[DenseLayer, ...]:
        return tuple(self._dense_layer(_plain(p)) for k, p in self._modules() if k == "Dense")

    def _dense_layer(self, place: str) -> DenseLayer:
        name, weights = f"{place}/config.json", f"{place}/model.safetensors"
        config = read_settings(self.root, name)
        stated = str(config.get("activation_function", "")).rpartition(".")[2]
        dims = _count(config.get("out_features"))
        activation = next((own for own in Activation if own == stated), None)
        if activation is None or dims is None:
            raise Invalid(
                f"{name} has the activation {stated or 'none'} and {config.get('out_features')} features; supported"
                f" are {', '.join(Activation)}"
            )
        if not (self.root / weights).is_file():
            raise Invalid(f"the folder has no {weights}: only safetensors are read, never pickles")
        self._files += [name, weights]
        return DenseLayer(weights, dims, activation)

    def _dims(self, value: GraphValue, dense: tuple[DenseLayer, ...]) -> int:
        if dense:
            return dense[-1].dims
        if value.dims and value.dims[-1]:
            return value.dims[-1]
        pooling = _plain(self._folder_of("Pooling") or "1_Pooling")
        config = read_settings(self.root, CONFIG)
        of_pooling = read_settings(self.root, f"{pooling}/config.json")
        for named in (
            of_pooling.get("word_embedding_dimension"),
            of_pooling.get("embedding_dimension"),
            config.get("projection_dim") if value.name in ("text_embeds", "image_embeds") else None,
            self._text_config().get("hidden_size"),
            config.get("n_embd"),
        ):
            if isinstance(named, int) and named > 0:
                return named
        raise Invalid(f"{CONFIG} has no hidden_size (the width of the vectors)")

    def _prompts(self) -> Mapping[str, str]:
        """The given ones, else as ``encode_document`` and ``encode_query`` of sentence-transformers choose them."""
        if self.given is not None:
            return self.given
        config = read_settings(self.root, PROMPTS)
        named = config.get("prompts")
        if not isinstance(named, dict):
            return {}
        default = named.get(str(config.get("default_prompt_name")))
        found = {
            "document": _first(named, "document", "passage", "corpus", default=default),
            "query": _first(named, "query", default=default),
        }
        return found if any(found.values()) else {}

    def _matryoshka(self, dims: int | None) -> tuple[int, ...]:
        config = read_settings(self.root, CONFIG)
        stated = config.get("matryoshka_dimensions") or config.get("matryoshka_dims")
        if dims is None or not isinstance(stated, list):
            return ()
        return tuple(sorted(n for n in stated if isinstance(n, int) and 0 < n < dims))


def _text_output(graph: OnnxGraph, model: str, *, pair: bool = False) -> tuple[GraphValue, bool]:
    """The output that is used, and whether it has a row per token. ``pair``: of a model of texts and pictures."""
    names = (*_WHOLE, *(("pooler_output",) if pair else ()), *_STATES)
    value = next((v for name in names if (v := graph.output(name))), None)
    if value is None:
        # Outputs without a known name: token vectors win, since a pooled one may be of another pooling.
        value = next((v for v in graph.outputs if len(v.dims) == 3), graph.outputs[0])
    ranks = len(value.dims)
    if value.name == "logits" or ranks not in (2, 3):
        raise Invalid(
            f"{model} returns {_shape(value)}: an embedder returns one vector per text or per token; export it with"
            " --task feature-extraction"
        )
    return value, ranks == 3


def _shape(value: GraphValue) -> str:
    return f"{value.name} of the shape ({', '.join(str(d or '?') for d in value.dims)})"


def _first(named: Mapping[str, Any], *names: str, default: Any) -> str:
    return str(next((named[name] for name in names if named.get(name)), default) or "")


def _count(value: object) -> int | None:
    """``value`` if it is a sane number of tokens or features."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _LONGEST:
        return None
    return int(value)


def _plain(place: str) -> str:
    """The folder of a module, directly below the model's."""
    if not place or place.startswith(".") or any(sign in place for sign in "/\\:\0"):
        raise Invalid(
            f"{MODULES} names the folder {place!r}: a module lies directly below the folder"
        )
    return place
