"""Language models by ``<provider>/<model>``, opened once per process, and what a manifest may ask of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from latent_core.domain.errors import Invalid, Misconfigured
from latent_core.domain.manifest.language_models import MODEL_BLOCKS
from latent_core.domain.manifest.model import Manifest, model_block
from latent_core.models.embedding.rate import Rate
from latent_core.models.llm.anthropic_messages import AnthropicMessages
from latent_core.models.llm.openai_chat import LIMITS, OpenAiChat
from latent_core.models.llm.port import ModelClient, Usage
from latent_core.models.llm.transcription import TRANSCRIBES, Transcriber
from latent_core.models.llm.wire import ModelEndpoint
from latent_core.models.providers.entry import Kind
from latent_core.models.providers.registry import UNLIMITED, Provider, ProviderModel, Providers

REQUESTS: Final = 4
"""Concurrent ones of jobs to a provider, unless its entry says otherwise."""
QUESTIONS: Final = 2
"""Concurrent ones, in addition to these."""
MILLION: Final = 1_000_000
_OWN_HOST: Final = ".openai.com"


@dataclass(frozen=True, slots=True)
class OpenModel:
    """A language model, with the limits and prices of its provider."""

    model: ModelClient
    rate: Rate
    per_minute: int
    slots: asyncio.Semaphore
    """Concurrent requests of jobs."""
    question_slots: asyncio.Semaphore
    input_price: float
    output_price: float

    def cost(self, usage: Usage) -> float:
        whole = usage.input_tokens * self.input_price + usage.output_tokens * self.output_price
        return round(whole / MILLION, 9)


@dataclass(slots=True)
class LanguageModels:
    """All that this installation can open. ``rates`` makes the limit of a name and a number of requests per minute."""

    providers: Providers
    rates: Callable[[str, int], Rate]
    _open: dict[tuple[str, bool], OpenModel] = field(default_factory=dict)
    _limits: dict[str, Rate] = field(default_factory=dict)
    _slots: dict[tuple[str, bool], asyncio.Semaphore] = field(default_factory=dict)
    """Of transcriptions apart: each may take hours."""
    _question_slots: dict[str, asyncio.Semaphore] = field(default_factory=dict)

    def check(self, manifest: Manifest) -> None:
        """``Invalid`` names the enabled blocks whose provider is unknown here, or cannot do what the block needs."""
        if refused := self.refused(manifest):
            raise Invalid("; ".join(refused.values()), keys=list(refused))

    def refused(self, manifest: Manifest) -> dict[str, str]:
        """The keys of such blocks, each with its error message."""
        has_cost = manifest.model_budget.cost is not None
        found: dict[str, str] = {}
        for key in MODEL_BLOCKS:
            block = model_block(manifest, key)
            if not block.enabled or block.provider is None:
                continue
            if message := self._refusal(key, block.provider, has_cost=has_cost):
                found[key] = message
        return found

    def settled(self, manifest: Manifest) -> tuple[Manifest, list[str]]:
        """The manifest of an archive without blocks that are refused here, and their keys."""
        refused = self.refused(manifest)
        off = {key: type(model_block(manifest, key))() for key in refused}
        return manifest.model_copy(update=off), [f"{key}.enabled" for key in refused]

    def named(self, name: str, *, speech: bool = False) -> OpenModel:
        """The model, to write or (``speech``) to transcribe. ``Misconfigured`` says what is missing on this machine."""
        if (name, speech) not in self._open:
            try:
                found = self.providers.language_model(name)
            except Invalid as exc:
                raise Misconfigured(f"the language model {name}: {exc.message}") from exc
            if (missing := found.provider.missing()) is not None:
                raise Misconfigured(f"the language model {name} {missing}")
            self._open[name, speech] = self._opened(name, found, speech=speech)
        return self._open[name, speech]

    def cost(self, name: str, usage: Usage) -> float | None:
        """What a call cost, in the currency of its provider's prices; None if it has no price."""
        model = self.named(name)
        return model.cost(usage) if model.input_price or model.output_price else None

    async def close(self) -> None:
        for one in self._open.values():
            await one.model.close()

    def _refusal(self, key: str, name: str, *, has_cost: bool) -> str | None:
        where = f"{key}.provider"
        try:
            provider = self.providers.language_model(name).provider
        except Invalid as exc:
            return f"{where}: {exc.message}"
        if key == "speech" and provider.kind not in TRANSCRIBES:
            return f"{where}: providers of kind {provider.kind.value} transcribe no speech; use one of kind openai or vllm"
        if key == "captions" and "images" not in provider.reads:
            return f"{where}: {_reads_nothing(provider, 'images', '[images]')}"
        if key == "extraction" and not provider.reads:
            return f"{where}: {_reads_nothing(provider, 'images or PDFs', '[images] or [images, pdf]')}"
        if has_cost and not (provider.input_price or provider.output_price):
            return (
                f"model_budget.cost has no effect on {key}: the provider '{provider.name}' has no price. Add input_price and"
                " output_price to its entry in the file LLC_PROVIDERS"
            )
        return None

    def _opened(self, name: str, found: ProviderModel, *, speech: bool) -> OpenModel:
        provider = found.provider
        requests = provider.concurrency or REQUESTS
        per_minute = provider.rate or UNLIMITED
        limit = provider.limit_name(per_minute, "\0language-models")
        if limit not in self._limits:
            self._limits[limit] = self.rates(limit, per_minute)
        return OpenModel(
            Transcriber(endpoint_of(name, found, requests))
            if speech
            else client_of(name, found, requests),
            self._limits[limit],
            per_minute,
            self._slots.setdefault((provider.name, speech), asyncio.Semaphore(requests)),
            self._question_slots.setdefault(provider.name, asyncio.Semaphore(QUESTIONS)),
            provider.input_price,
            provider.output_price,
        )


def _reads_nothing(provider: Provider, what: str, value: str) -> str:
    return (
        f"the language models of the provider '{provider.name}' read no {what}. If this one does, add reads: {value} to"
        " the provider's entry in the file LLC_PROVIDERS; latent models test tells"
    )


def endpoint_of(name: str, found: ProviderModel, requests: int) -> ModelEndpoint:
    provider = found.provider
    return ModelEndpoint(
        name,
        found.model,
        provider.base_url or "",
        provider.secret(),
        reads_pdf="pdf" in provider.reads,
        reads_images="images" in provider.reads,
        connections=requests + QUESTIONS,
        setting=provider.address_setting,
        key_setting=provider.key_setting,
        key_header=provider.key_header,
    )


def client_of(name: str, found: ProviderModel, requests: int) -> ModelClient:
    """The client of a provider's model. Its texts and pictures leave this machine: only ``calls`` uses it, and the test
    of a model, which sends its own."""
    endpoint = endpoint_of(name, found, requests)
    if found.provider.kind is Kind.ANTHROPIC:
        return AnthropicMessages(endpoint)
    own = found.provider.kind is Kind.OPENAI and _OWN_HOST in (found.provider.base_url or "")
    return OpenAiChat(endpoint, limit=LIMITS[1] if own else LIMITS[0])
