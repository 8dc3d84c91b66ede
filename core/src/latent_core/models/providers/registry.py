"""The providers of an installation: those of the file, and those that the contract's settings give.

openai, vllm, jina    at LLC_EMBED_BASE_URL
nomic                 at LLC_NOMIC_BASE_URL
<name>                an entry of LLC_PROVIDERS; one with a name above replaces it

``<provider>/<model>`` names a model: all after the first ``/`` is the model's name on its server.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
from pydantic import SecretStr

from latent_core.domain.errors import Invalid, Misconfigured
from latent_core.domain.manifest.model import VLLM_WITHOUT_PREFIX
from latent_core.models.providers.entry import DEFAULT_ADDRESS, Kind, ProviderEntry, read_providers
from latent_core.settings import Settings
from latent_core.telemetry.redaction import BEARER

TEXTS_PER_MINUTE: Final = 120
"""Of the contract's embedder, ``VLLM_WITHOUT_PREFIX``, unless it is configured."""
UNLIMITED: Final = 1_000_000
"""Texts per minute without a configured rate: only the server's own answers limit requests."""
WINDOW: Final = 512
MAX_KEY_BYTES: Final = 16 * 1024
_KEY_HEADERS: Final = {Kind.GEMINI: "x-goog-api-key", Kind.ANTHROPIC: "x-api-key"}
HAS_LANGUAGE_MODELS: Final = frozenset({Kind.OPENAI, Kind.ANTHROPIC, Kind.OLLAMA, Kind.VLLM})
READS: Final = frozenset({"images", "pdf"})
_EMBEDS: Final = frozenset(Kind) - {Kind.ANTHROPIC}


@dataclass(frozen=True, slots=True)
class Provider:
    """A server with its key and limits."""

    name: str
    kind: Kind
    base_url: str | None
    key: SecretStr | None = None
    key_file: Path | None = None
    rate: int | None = None
    """Texts per minute."""
    concurrency: int | None = None
    price: float = 0.0
    """Of a million tokens; 0 is unknown."""
    input_price: float = 0.0
    """Of a million tokens that a language model reads; 0 is unknown."""
    output_price: float = 0.0
    """Of a million tokens that it writes."""
    reads: frozenset[str] = frozenset()
    """What its language models read in addition to text: ``images``, ``pdf``."""
    window: int = WINDOW
    options: Mapping[str, Any] = field(default_factory=dict)
    address_setting: str = "LLC_EMBED_BASE_URL"
    """Names the address in messages."""
    key_setting: str = "LLC_EMBED_API_KEY"
    rate_setting: str = "LLC_EMBED_RATE_LIMIT_PER_MIN"
    window_setting: str = "LLC_EMBED_WINDOW"
    needs_key: bool = False
    from_file: bool = False
    """Whether it is an entry of LLC_PROVIDERS."""

    @property
    def key_header(self) -> str:
        """The header of requests that has the key."""
        return _KEY_HEADERS.get(self.kind, BEARER)

    def missing(self) -> str | None:
        """What has to be set before a model of the provider can be used, after the model's name in a message; None when
        nothing is missing."""
        if not self.base_url:
            return f"is reached over HTTP: set {self.address_setting}"
        if self.needs_key and self.key is None and self.key_file is None:
            return f"needs a key: set {self.key_setting}"
        try:
            self.secret()
        except Misconfigured as exc:
            return f"has no key: {exc.message}"
        return None

    def secret(self) -> SecretStr | None:
        """The key, read from its file; ``Misconfigured`` names a file that cannot be used."""
        if self.key_file is None:
            return self.key
        try:
            with self.key_file.open("rb") as file:
                content = file.read(MAX_KEY_BYTES + 1)
            text = content.decode("utf-8").strip()
        except (OSError, UnicodeDecodeError) as exc:
            why = exc.strerror if isinstance(exc, OSError) else "it is not text"
            raise Misconfigured(
                f"{self.key_setting}: {self.key_file} cannot be read: {why}"
            ) from exc
        if not text or len(content) > MAX_KEY_BYTES:
            raise Misconfigured(f"{self.key_setting}: {self.key_file} must contain one key")
        return SecretStr(text)

    def per_minute(self, model: str) -> int | None:
        """The configured limit of texts per minute for a model; None if the server alone decides."""
        if self.rate is not None:
            return self.rate
        return TEXTS_PER_MINUTE if model in VLLM_WITHOUT_PREFIX else None

    def limit_name(self, per_minute: int, use: str = "") -> str:
        """Name of the limit that all processes with this address and key share: a hash that reveals neither. Each ``use``
        has its own."""
        secret = self.secret()
        key = secret.get_secret_value() if secret else ""
        named = f"{self.base_url}\0{key}\0{per_minute}{use}"
        return hashlib.sha256(named.encode()).hexdigest()[:32]


class ProviderModel(NamedTuple):
    provider: Provider
    model: str
    """Its name on the server."""


class Providers:
    """All providers by name."""

    def __init__(self, providers: Iterable[Provider]) -> None:
        self._by_name = {provider.name: provider for provider in providers}

    @classmethod
    def of(cls, settings: Settings) -> Providers:
        """``Invalid`` names what is wrong in the file."""
        entries = read_providers(settings.providers) if settings.providers is not None else ()
        return cls([*_of_settings(settings), *(_of_entry(entry, settings) for entry in entries)])

    def __iter__(self) -> Iterator[Provider]:
        return iter(self._by_name.values())

    def secrets(self) -> list[SecretStr]:
        """All keys that can be read, to keep them out of logs."""
        found: list[SecretStr] = []
        for provider in self:
            with suppress(Misconfigured):
                if (secret := provider.secret()) is not None:
                    found.append(secret)
        return found

    def find(self, name: str) -> ProviderModel | None:
        """The provider and the model that ``<provider>/<model>`` names; None if ``name`` names no model of a provider.
        The contract's own name needs no provider."""
        if name in VLLM_WITHOUT_PREFIX:
            return ProviderModel(self._by_name[Kind.VLLM], name)
        prefix, slash, model = name.partition("/")
        provider = self._by_name.get(prefix)
        return ProviderModel(provider, model) if slash and model and provider else None

    def embedding(self, name: str) -> ProviderModel | None:
        """As ``find``; ``Invalid`` for a provider without embedders."""
        found = self.find(name)
        if found is not None and found.provider.kind not in _EMBEDS:
            raise Invalid(
                f"embedder '{name}': the provider '{found.provider.name}' is of kind {found.provider.kind.value}, which has"
                " language models only; use another provider"
            )
        return found

    def language_model(self, name: str) -> ProviderModel:
        """As ``find``; ``Invalid`` if ``name`` is no model of a provider with language models."""
        found = self.find(name)
        if found is None:
            raise Invalid(self.unknown(name) or f"'{name}' names no language model")
        if found.provider.kind not in HAS_LANGUAGE_MODELS:
            kinds = ", ".join(sorted(HAS_LANGUAGE_MODELS))
            raise Invalid(
                f"the provider '{found.provider.name}' is of kind {found.provider.kind.value}, which has no language models;"
                f" kinds with language models are {kinds}"
            )
        return found

    def unknown(self, name: str) -> str | None:
        """Why ``<provider>/<model>`` names no provider, with the nearest name; None for another shape of name."""
        prefix, slash, model = name.partition("/")
        if not slash or not model or ":" in prefix or prefix in self._by_name:
            return None
        near = difflib.get_close_matches(prefix, self._by_name, n=1)
        known = ", ".join(sorted(self._by_name))
        hint = (
            f"did you mean '{near[0]}/{model}'?"
            if near
            else f"known are {known}; LLC_PROVIDERS names the file that adds others"
        )
        return f"there is no provider '{prefix}'; {hint}"


def _first(price: float | None, default: float | None) -> float:
    return price if price is not None else default or 0.0


def _reads(entry: ProviderEntry) -> frozenset[str]:
    """OpenAI's own service and Anthropic's API read PDFs; of local servers it depends on the model."""
    own = entry.base_url is None or (httpx.URL(entry.base_url).host or "").endswith(".openai.com")
    reading = entry.kind is Kind.ANTHROPIC or (entry.kind is Kind.OPENAI and own)
    return READS if reading else frozenset()


def _of_settings(settings: Settings) -> list[Provider]:
    common: dict[str, Any] = {
        "key": settings.embed_api_key,
        "rate": settings.embed_rate_limit_per_min,
        "price": settings.embed_price_per_million,
        "window": settings.embed_window,
    }
    served = [
        Provider(kind.value, kind, settings.embed_base_url, **common)
        for kind in (Kind.OPENAI, Kind.VLLM, Kind.JINA)
    ]
    nomic = Provider(
        Kind.NOMIC.value,
        Kind.NOMIC,
        settings.nomic_base_url,
        address_setting="LLC_NOMIC_BASE_URL",
        key_setting="LLC_NOMIC_API_KEY",
        needs_key=True,
        **common,
    )
    return [*served, nomic]


def _of_entry(entry: ProviderEntry, settings: Settings) -> Provider:
    named = f"of the provider '{entry.name}' in {settings.providers}"
    return Provider(
        entry.name,
        entry.kind,
        entry.base_url or DEFAULT_ADDRESS[entry.kind],
        key_file=entry.key_file,
        rate=entry.rate,
        concurrency=entry.concurrency,
        price=entry.price or 0.0,
        input_price=_first(entry.input_price, entry.price),
        output_price=_first(entry.output_price, entry.price),
        reads=frozenset(entry.reads) if entry.reads is not None else _reads(entry),
        window=entry.window or WINDOW,
        options=entry.options,
        address_setting=f"base_url {named}",
        key_setting=f"key_file {named}",
        rate_setting=f"rate {named}",
        window_setting=f"window {named}",
        needs_key=entry.base_url is None and entry.kind is not Kind.OLLAMA,
        from_file=True,
    )
