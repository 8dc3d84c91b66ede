"""The file that LLC_PROVIDERS names: servers of models, one entry each."""

from __future__ import annotations

import difflib
import re
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Literal, Self

import httpx
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from latent_core.domain.errors import Invalid
from latent_core.domain.manifest.yaml_reader import load_yaml

MAX_FILE_BYTES: Final = 256 * 1024
MAX_PROVIDERS: Final = 100
NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,38}[a-z0-9])?")
_OF_LOCAL: Final = "local"
_WORDS: Final = frozenset({"api", "none"})
"""Values of ``retrieval.rerank.provider`` with a meaning of their own."""


class Kind(StrEnum):
    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    OLLAMA = "ollama"
    NOMIC = "nomic"
    JINA = "jina"
    VOYAGE = "voyage"
    COHERE = "cohere"
    TEI = "tei"
    VLLM = "vllm"
    GEMINI = "gemini"


FIXED: Final = frozenset({Kind.OPENAI, Kind.VLLM, Kind.JINA, Kind.NOMIC})
"""Names that the contract's settings give to providers, each of the kind of the same name."""
DEFAULT_ADDRESS: Final = {
    Kind.OPENAI: "https://api.openai.com",
    Kind.ANTHROPIC: "https://api.anthropic.com",
    Kind.OLLAMA: "http://127.0.0.1:11434",
    Kind.NOMIC: "https://api-atlas.nomic.ai",
    Kind.JINA: "https://api.jina.ai",
    Kind.VOYAGE: "https://api.voyageai.com",
    Kind.COHERE: "https://api.cohere.com",
    Kind.GEMINI: "https://generativelanguage.googleapis.com",
}
"""TEI and vLLM have no usual one."""


class ProviderEntry(BaseModel):
    """One server, or one account at a service."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    """The part before ``/`` in a manifest's ``embedder``."""
    kind: Kind
    base_url: str | None = None
    """With or without ``/v1``; default the service's own address."""
    key_file: Path | None = None
    """A file that contains the key only."""
    rate: int | None = Field(default=None, ge=1, le=10**9)
    """Texts, or requests to language models, per minute; default: as the server's own answers demand."""
    concurrency: int | None = Field(default=None, ge=1, le=64)
    """Concurrent requests of jobs; default 8, to language models 4."""
    price: float | None = Field(default=None, ge=0, le=1_000_000)
    """Of a million tokens, in any currency."""
    input_price: float | None = Field(default=None, ge=0, le=1_000_000)
    """Of a million tokens that a language model reads; default ``price``."""
    output_price: float | None = Field(default=None, ge=0, le=1_000_000)
    """Of a million tokens that a language model writes; default ``price``."""
    reads: tuple[Literal["images", "pdf"], ...] | None = None
    """What its language models read in addition to text; default: both for OpenAI's and Anthropic's own services, else nothing."""
    window: int | None = Field(default=None, ge=16, le=131_072)
    """Tokens that its models read per text; default 512."""
    options: dict[str, Any] = Field(default_factory=dict, max_length=50)
    """For Ollama: options of the model, such as ``num_ctx``."""

    @field_validator("name")
    @classmethod
    def _usable_name(cls, value: str) -> str:
        if not NAME.fullmatch(value):
            raise ValueError(
                "use 1 to 40 of a-z, 0-9, '-' and '_', not beginning or ending with a sign"
            )
        if value in _WORDS or value.startswith(_OF_LOCAL):
            raise ValueError(f"'{value}' has a meaning of its own in manifests; use another name")
        return value

    @field_validator("base_url")
    @classmethod
    def _usable_address(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                url = httpx.URL(value)
            except httpx.InvalidURL as exc:
                raise ValueError(f"cannot be read: {exc}") from exc
            if url.scheme not in ("http", "https") or not url.host:
                raise ValueError("must be an http:// or https:// address")
            if url.userinfo:
                raise ValueError(
                    "contains a password; put the key into a file and name it key_file"
                )
        return value

    @field_validator("key_file")
    @classmethod
    def _expanded(cls, value: Path | None) -> Path | None:
        return None if value is None else value.expanduser()

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        if self.name in FIXED and self.name != self.kind:
            raise ValueError(
                f"the name '{self.name}' means a provider of kind {self.name}; use another name for kind {self.kind.value}"
            )
        if self.base_url is None and self.kind not in DEFAULT_ADDRESS:
            raise ValueError(f"base_url is needed: kind {self.kind.value} has no usual address")
        if self.options and self.kind is not Kind.OLLAMA:
            raise ValueError("options are read by kind ollama only")
        return self


class ProvidersFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    providers: tuple[ProviderEntry, ...] = Field(max_length=MAX_PROVIDERS)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = [entry.name for entry in self.providers]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two providers are named '{name}'")
        return self


def read_providers(path: Path) -> tuple[ProviderEntry, ...]:
    """The entries of a file, a relative ``key_file`` below its folder; ``Invalid`` names line and key of what is wrong."""
    where = f"LLC_PROVIDERS: {path}"
    try:
        with path.open("rb") as file:
            source = file.read(MAX_FILE_BYTES + 1)
    except OSError as exc:
        raise Invalid(f"{where}: cannot be read: {exc.strerror or exc}") from exc
    if len(source) > MAX_FILE_BYTES:
        raise Invalid(f"{where}: has over {MAX_FILE_BYTES} bytes")
    data, lines = load_yaml(source, where)
    try:
        entries = ProvidersFile.model_validate(data).providers
    except ValidationError as exc:
        raise Invalid("; ".join(_problem(error, where, lines) for error in exc.errors())) from exc
    return tuple(_placed(entry, path.parent) for entry in entries)


def _problem(error: Any, where: str, lines: dict[str, int]) -> str:
    """One error with the line of its key. It never shows a value, which may be a key in the wrong place."""
    path = [str(part) for part in error["loc"]]
    key = ".".join(path)
    at = key
    while at and at not in lines:
        at = at.rpartition(".")[0]
    place = f"{where}, line {lines[at]}" if at else where
    if error["type"] == "extra_forbidden":
        known = sorted(ProviderEntry.model_fields if len(path) > 1 else ProvidersFile.model_fields)
        near = difflib.get_close_matches(path[-1], known, n=1, cutoff=0.5)
        hint = f"did you mean '{near[0]}'?" if near else f"known here: {', '.join(known)}"
        return f"{place}: unknown key '{key}'; {hint}"
    message = str(error["msg"]).removeprefix("Value error, ")
    return f"{place}: {key or 'the file'}: {message}"


def _placed(entry: ProviderEntry, folder: Path) -> ProviderEntry:
    if entry.key_file is None or entry.key_file.is_absolute():
        return entry
    return entry.model_copy(update={"key_file": folder / entry.key_file})
