"""The record ``model.json`` of an installed model, and the rules for names of models and of their files."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shlex
import sys
from array import array
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from latent_core.domain.errors import Invalid
from latent_core.domain.manifest.model import MODEL_NAME, WITH_IMAGES, is_installable
from latent_core.models.store.known import PAIRS

RECORD_FILE: Final = "model.json"
MAX_RECORD_BYTES: Final = 1024 * 1024
MAX_FILES: Final = 64
MAX_PATH_BYTES: Final = 100
"""A name of a tar archive without extensions."""
FULL_PRECISION: Final = frozenset({"fp32", "fp16", "bf16"})
"""Weights that are taken if a person names none."""
WITH_PARTNER: Final = "+images."
"""Before the revision of the repository whose pictures a pair embeds."""
PICTURES_FOLDER: Final = "vision"
"""Of the files of that repository, below the folder of a pair."""
WITH_PROMPTS: Final = "+prompts."
"""Before the digest of prompts that a person gave: they make other vectors."""
PROMPT_KEYS: Final = frozenset({"query", "document"})
MAX_PROMPT: Final = 1000
"""Characters of a prompt."""
REVISION_SHOWN: Final = 12
"""Characters of a revision in names of folders and versions."""
HUB_ID: Final = re.compile(r"(?:[A-Za-z0-9][\w.-]{0,95}/)?[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
PRECISION: Final = re.compile(r"[a-z0-9]{1,16}")
REVISION: Final = re.compile(r"[0-9a-f]{40}")
_GIVEN: Final = r"(?:\+prompts\.[0-9a-f]{6})?(?:\+images\.[0-9a-f]{12})?"
_SUFFIX: Final = rf"(?:\+{PRECISION.pattern})?{_GIVEN}"
VERSION: Final = re.compile(
    rf"(?P<hub_id>{HUB_ID.pattern})@(?P<rest>[0-9a-f]{{12}}{_SUFFIX})",
    re.ASCII,
)
_OF_FP32: Final = re.compile(
    rf"(?P<begin>{HUB_ID.pattern}@[0-9a-f]{{12}})(?P<end>{_GIVEN})", re.ASCII
)
"""Of vectors."""
FOLDER: Final = re.compile(rf"{MODEL_NAME.pattern}@[0-9a-f]{{{REVISION_SHOWN}}}{_SUFFIX}")
"""Names of the folders of installed models. Built-in ones are kept next to them, under names of their own."""
HALF_PRECISION: Final = ("fp16", "bf16")
"""Weights that may reproduce the vectors of fp32."""
SAME: Final = 0.9999
"""Cosine from which two vectors count as one."""
SHA256: Final = re.compile(r"[0-9a-f]{64}")
_ALLOWED: Final = re.compile(
    r"(?:.*\.(?:onnx|safetensors|json)|.*\.onnx[._]data(?:_\d{1,3})?|vocab\.txt|merges\.txt)",
    re.DOTALL,
)
E5_PROMPTS: Final = {"query": "query: ", "document": "passage: "}
"""What the models of the E5 family need and their files do not name."""
_DRIVE: Final = re.compile(r"[A-Za-z]:")


def checked_path(path: str) -> str:
    """``path`` if it is a plain relative name below a folder; ``ValueError`` says why not."""
    parts = path.split("/")
    if not path or len(path) > 4096 or not path.isprintable():
        raise ValueError(
            f"the file name {path[:MAX_PATH_BYTES]!r} is empty, too long or not printable"
        )
    if path.startswith("/") or "\\" in path or _DRIVE.match(path):
        raise ValueError(f"the file name {path!r} is not relative")
    if any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"the file name {path!r} leaves its folder")
    return path


def is_model_file(path: str) -> bool:
    """Whether files of this name are read at all: weights, settings and vocabularies, never code or pickles."""
    name = PurePosixPath(path).name
    short = len(path.encode()) <= MAX_PATH_BYTES
    return short and name != RECORD_FILE and _ALLOWED.fullmatch(name) is not None


TEXTS_OF_PROBES: Final = {1: 6}
"""Number of texts whose vectors are kept, by ``ReferenceVectors.probes``."""


def _read(floats: str) -> array[float]:
    values = array("f", b64decode(floats, validate=True))
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _floats(text: str) -> str:
    if not all(map(math.isfinite, _read(text))):
        raise ValueError("a number is not finite")
    return text


def _lowest_cosine(one: str, other: str, width: int) -> float:
    ours, theirs = _read(one), _read(other)
    rows = range(0, min(len(ours), len(theirs)), width)
    return min(_cosine(ours[row : row + width], theirs[row : row + width]) for row in rows)


def _cosine(one: array[float], other: array[float]) -> float:
    norms = math.sqrt(sum(x * x for x in one) * sum(x * x for x in other))
    return sum(x * y for x, y in zip(one, other, strict=True)) / norms if norms else 0.0


def _model_file(path: str) -> str:
    if not is_model_file(checked_path(path)):
        raise ValueError(
            f"the file {path!r} is neither ONNX, safetensors, JSON nor a vocabulary, or its name is too long"
        )
    return path


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository as the hub lists it. ``sha256`` is known for files in LFS, ``git_hash`` for others."""

    path: str
    size: int
    sha256: str | None = None
    git_hash: str | None = None


def _all_of(pattern: re.Pattern[str]) -> AfterValidator:
    """The whole value must match; ``Field(pattern=…)`` is content with a part of it."""

    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(f"{value[:MAX_PATH_BYTES]!r} has another form than {pattern.pattern}")
        return value

    return AfterValidator(check)


class ModelFile(BaseModel):
    """A file of an installed model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Annotated[str, AfterValidator(_model_file)]
    size: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, _all_of(SHA256)]


class ReferenceVectors(BaseModel):
    """Vectors of fixed texts and of a drawn picture (``models.embedding.reference``)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    probes: Annotated[int, Field(ge=1)]
    """Which texts and picture."""
    texts: Annotated[str, AfterValidator(_floats)]
    """Row by row, float32 of little endian in base64."""
    picture: Annotated[str, AfterValidator(_floats)] | None = None
    runtime: Annotated[str, Field(max_length=64)]
    """That computed them."""

    def agrees_with(self, other: ReferenceVectors) -> bool:
        """Whether all vectors are the same, but for rounding."""
        same_picture = (self.picture is None) == (other.picture is None)
        if self.probes != other.probes or len(self.texts) != len(other.texts) or not same_picture:
            return False
        pairs = [(self.texts, other.texts), (self.picture or "", other.picture or "")]
        width = self.width or 1
        return all(_lowest_cosine(one, two, width) >= SAME for one, two in pairs if one)

    @property
    def width(self) -> int | None:
        """Dimensions of a vector; None if another release chose the texts."""
        texts = TEXTS_OF_PROBES.get(self.probes)
        return None if texts is None else len(_read(self.texts)) // texts


class Partner(BaseModel):
    """The repository that embeds the pictures of a pair."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hub_id: Annotated[str, _all_of(HUB_ID)]
    revision: Annotated[str, _all_of(REVISION)]

    @property
    def suffix(self) -> str:
        """What a partner adds to the version of vectors."""
        return f"{WITH_PARTNER}{self.revision[:REVISION_SHOWN]}"


class InstalledModel(BaseModel):
    """What ``model.json`` says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    hub_id: Annotated[str, _all_of(HUB_ID)]
    revision: Annotated[str, _all_of(REVISION)]
    name: Annotated[str, _all_of(MODEL_NAME)]
    kind: Literal["embedder", "image_embedder", "reranker"]
    dims: Annotated[int, Field(ge=1)] | None = None
    window: Annotated[int, Field(ge=1)] | None = None
    precision: Annotated[str, _all_of(PRECISION)]
    prompts: dict[str, str] = Field(default_factory=dict)
    prompts_given: bool = False
    """Whether a person gave the prompts. Otherwise they are those of the files."""
    partner: Partner | None = None
    """Of a pair; its files lie below ``vision/``."""
    vectors: ReferenceVectors | None = None
    """What it must compute; of weights that count as fp32, the vectors of those. None for rerankers."""
    counts_as_fp32: bool = False
    """Whether its vectors are those of the fp32 weights of this commit, but for rounding."""
    files: Annotated[tuple[ModelFile, ...], Field(min_length=1, max_length=MAX_FILES)]
    added_at: datetime

    @model_validator(mode="after")
    def _one_name(self) -> Self:
        if self.name != name_of(self.hub_id):
            raise ValueError(f"the name of {self.hub_id} is {name_of(self.hub_id)}")
        if len({file.path.lower() for file in self.files}) < len(self.files):
            raise ValueError("a file is listed twice")
        if self.prompts_given:
            self._check_prompts()
        of_partner = any(file.path.startswith(f"{PICTURES_FOLDER}/") for file in self.files)
        if (self.partner is not None) != of_partner:
            raise ValueError(f"a pair has files below {PICTURES_FOLDER}, and no other model has")
        if self.counts_as_fp32 and (self.precision not in HALF_PRECISION or self.vectors is None):
            raise ValueError(f"{self.precision} without vectors does not count as fp32")
        if self.vectors is not None and self.vectors.width not in (None, self.dims):
            raise ValueError(f"its vectors have {self.vectors.width} dimensions")
        return self

    def _check_prompts(self) -> None:
        if self.kind == "reranker" or self.window is None:
            raise ValueError(f"{self.hub_id} embeds no texts: it has no prompts")
        if self.prompts.keys() != PROMPT_KEYS or max(map(len, self.prompts.values())) > MAX_PROMPT:
            raise ValueError(
                f"given prompts are one for queries and one for documents, of {MAX_PROMPT} characters at the longest"
            )

    @property
    def suffix(self) -> str:
        """Behind the revision: weights that are not float32, prompts that a person gave, the partner of a pair."""
        precision = "" if self.precision == "fp32" else f"+{self.precision}"
        prompts = suffix_of(self.prompts) if self.prompts_given else ""
        return precision + prompts + (self.partner.suffix if self.partner else "")

    @property
    def reference(self) -> str:
        """Name, revision and suffix: also the name of its folder."""
        return reference_of(self.name, self.revision) + self.suffix

    @property
    def version(self) -> str:
        """Of the model, and of the vectors it makes unless it counts as fp32."""
        return f"{self.hub_id}@{self.revision[:REVISION_SHOWN]}{self.suffix}"

    @property
    def vector_version(self) -> str:
        """Of the vectors of new containers."""
        if not self.counts_as_fp32:
            return self.version
        return self.model_copy(update={"precision": "fp32", "counts_as_fp32": False}).version

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def add_command(self) -> str:
        precision = "" if self.precision == "fp32" else f"+{self.precision}"
        command = add_command(f"{self.hub_id}@{self.revision}{precision}")
        if self.prompts_given:
            command += prompt_options(self.prompts)
        if self.partner is not None:
            command += f" --with {self.partner.hub_id}@{self.partner.revision}"
        return command


def reference_of(name: str, revision: str) -> str:
    return f"{name}@{revision[:REVISION_SHOWN]}"


def base_version(version: str) -> str:
    """The version of a model, from that of vectors: those of one repository of texts and pictures say so at their
    end. Pairs of two have it in their own."""
    return version.removesuffix(WITH_IMAGES)


def half_versions(version: str) -> list[str]:
    """Of weights that may count as those of ``version``, which is one of fp32; none for others."""
    found = _OF_FP32.fullmatch(base_version(version))
    return [f"{found['begin']}+{own}{found['end']}" for own in HALF_PRECISION] if found else []


def add_command(version: str) -> str:
    """The command that installs the model of a version such as ``acme/tiny@0123456789ab+int8``."""
    model, _, partner = base_version(version).partition(WITH_PARTNER)
    base, _, digest = model.partition(WITH_PROMPTS)
    source, plus, precision = base.partition("+")
    command = f"latent models add {source}"
    if partner:
        pictures = PAIRS.get(source.partition("@")[0], "<hub id of the picture model>")
        command += f" --with {pictures}@{partner}"
    command += f" --precision {precision}" if plus else ""
    if not digest:
        return command
    if suffix_of(E5_PROMPTS) == WITH_PROMPTS + digest:
        return command + prompt_options(E5_PROMPTS)
    # Of prompts that were given elsewhere the digest alone is known.
    return f"{command} --query-prompt TEXT --document-prompt TEXT (the texts of its first installation)"


def given_prompts(query: str | None, document: str | None) -> dict[str, str] | None:
    """The prompts that a person gave, in the place of all those of the files; None if none was given."""
    if query is None and document is None:
        return None
    prompts = {"query": query or "", "document": document or ""}
    for kind, prompt in prompts.items():
        if len(prompt) > MAX_PROMPT:
            raise Invalid(
                f"the prompt of a {kind} has {len(prompt)} characters; the limit is {MAX_PROMPT}"
            )
        try:
            prompt.encode()
        except UnicodeEncodeError as exc:
            raise Invalid(f"the prompt of a {kind} is not UTF-8") from exc
    return prompts


def suffix_of(prompts: Mapping[str, str]) -> str:
    """What given prompts add to the version of vectors."""
    content = json.dumps([prompts["query"], prompts["document"]], ensure_ascii=False)
    return WITH_PROMPTS + hashlib.sha256(content.encode()).hexdigest()[:6]


def prompt_options(prompts: Mapping[str, str]) -> str:
    """The options of ``latent models add`` that give these prompts."""
    query, document = shlex.quote(prompts["query"]), shlex.quote(prompts["document"])
    return f" --query-prompt {query} --document-prompt {document}"


def name_of(hub_id: str) -> str:
    """The model's name in manifests."""
    return hub_id.rpartition("/")[2].lower()


def parse_reference(text: str) -> tuple[str, str | None]:
    """Hub id and revision of ``<hub id>[@revision]``; ``Invalid`` if it is none."""
    hub_id, at, revision = text.strip().partition("@")
    if not HUB_ID.fullmatch(hub_id) or "--" in hub_id or ".." in hub_id:
        raise Invalid(
            f"'{text}' is not a model of a hub: write <owner>/<model>, such as nomic-ai/nomic-embed-text-v1.5,"
            " with @<revision> if it must be that one"
        )
    if at and not revision:
        raise Invalid(f"'{text}' ends with @: write a branch, tag or commit after it")
    if not is_installable(name_of(hub_id)):
        raise Invalid(
            f"'{name_of(hub_id)}' is the name of another embedder, so {hub_id} cannot be installed"
        )
    return hub_id, revision or None


def parse_record(content: bytes, source: str) -> InstalledModel:
    """The record in ``content``; ``Invalid`` names ``source`` and the first problem."""
    try:
        return InstalledModel.model_validate_json(content)
    except ValidationError as exc:
        first = exc.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise Invalid(
            f"{source} is not a model's record: {place + ': ' if place else ''}{first['msg']}"
        ) from exc
