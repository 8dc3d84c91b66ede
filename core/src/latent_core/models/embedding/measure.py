"""Measures an embedder before anything is ingested: dims, window, latency, speed, limits, and whether it cuts texts.

The window is what the server reports, checked with one longer text, or it is searched for: texts that become longer are
embedded with two different ends. A server that reads the whole text gives two vectors, one that cuts it gives the same
vector twice, and others refuse it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from statistics import median
from typing import Final

from latent_core.domain.errors import InputRefused, LatentError, RateLimited
from latent_core.domain.manifest.model import Manifest
from latent_core.models.embedding.api.dialects import TextClient
from latent_core.models.embedding.api.open import default_version, text_client
from latent_core.models.embedding.api.window import is_cut
from latent_core.models.embedding.api.wire import EmbeddingResponse
from latent_core.models.embedding.port import Embedder
from latent_core.models.embedding.resolve import EmbedderRegistry
from latent_core.models.providers.facts import UNKNOWN, ServerFacts, server_facts
from latent_core.models.providers.registry import ProviderModel
from latent_core.wire.models import ModelTest, WindowBasis

QUERIES: Final = 5
"""Short texts, one after the other, for the latency."""
BATCH: Final = 16
BATCH_WORDS: Final = 64
"""Texts of one request, and words of each, for the speed."""
FIRST_WORDS: Final = 64
MAX_WORDS: Final = 8192
"""The longest text that is sent: a bound for the cost, and for the time of a server without a GPU."""
SEARCH_STEPS: Final = 4
"""Halvings of the last doubling: the window is found to 1/16 of it."""
END_WORDS: Final = 16
"""Minimum number of words at the end that differ …"""
END_SHARE: Final = 0.05
"""… or this share of them."""
LONGER: Final = 1.25
"""A reported window is checked with a text that is longer by this factor."""
RETRIES: Final = 5
MAX_WAIT_SECONDS: Final = 60.0
_WORDS: Final = [
    "the",
    "water",
    "of",
    "this",
    "river",
    "runs",
    "down",
    "to",
    "an",
    "old",
    "mill",
    "where",
    "people",
    "made",
    "paper",
    "from",
    "wood",
    "and",
    "then",
    "sold",
    "it",
    "in",
    "a",
    "town",
    "on",
    "the",
    "other",
    "side",
    "of",
    "the",
    "hill",
    "that",
    "day",
    "was",
    "long",
    "and",
    "cold",
    "but",
    "every",
    "house",
    "had",
    "light",
    "and",
    "food",
    "for",
    "all",
    "who",
    "came",
    "home",
]
"""Words that are one token in common vocabularies."""


class _Reading(Enum):
    WHOLE = "whole"
    CUT = "cut"
    REFUSED = "refused"


def text_of(words: int, seed: int = 0) -> str:
    """Plain text of so many words; the same for the same arguments."""
    chosen = random.Random(seed)
    return " ".join(chosen.choices(_WORDS, k=words))


def _ending(words: int) -> int:
    return min(words, max(END_WORDS, round(words * END_SHARE)))


def two_ends(words: int) -> tuple[str, str]:
    """Two texts of so many words that differ in their last words only."""
    ending = _ending(words)
    begin = text_of(words - ending)
    return f"{begin} {'zinc ' * ending}".strip(), f"{begin} {'harbour ' * ending}".strip()


async def measure_embedder(embedders: EmbedderRegistry, name: str) -> ModelTest:
    """The embedder that a manifest names. ``Invalid`` or ``Misconfigured`` if it cannot be used."""
    found = embedders.of_provider(name)
    if found is not None:
        return await measure_remote(name, found)
    manifest = Manifest(id="test", name="Test", embedder=name)
    model = await asyncio.to_thread(embedders.model_of, manifest)
    return await measure_local(name, await embedders.opened(model))


async def measure_local(name: str, embedder: Embedder) -> ModelTest:
    """A model in this process: its own files say all but the speed."""
    await embedder.embed_documents([text_of(1)])  # a model loads at its first text
    latency = await _latency(lambda: embedder.embed_query("where was the paper made"))
    texts = [text_of(BATCH_WORDS, seed) for seed in range(BATCH)]
    began = time.perf_counter()
    await embedder.embed_documents(texts)
    seconds = max(time.perf_counter() - began, 1e-6)
    tokens = sum(embedder.tokenizer.count(texts))
    model = embedder.model
    return ModelTest(
        model=name,
        kind="local",
        version=model.version,
        dims=model.dims,
        window=model.window,
        window_basis=WindowBasis.FILES,
        truncates=False,
        latency_p50_ms=latency,
        texts_per_second=round(BATCH / seconds, 1),
        tokens_per_second=round(tokens / seconds),
        price_per_million=0.0,
    )


async def measure_remote(name: str, found: ProviderModel) -> ModelTest:
    """A model of a provider; the first error ends the test, since nothing works then."""
    version = default_version(found.provider)
    client = text_client(found, None, version, 1)
    try:
        return await _RemoteTest(name, found, version, client).run()
    finally:
        await client.close()


async def _latency(call: Callable[[], Awaitable[object]]) -> float:
    spent = []
    for _ in range(QUERIES):
        began = time.perf_counter()
        await call()
        spent.append(time.perf_counter() - began)
    return round(median(spent) * 1000, 1)


@dataclass(slots=True)
class _RemoteTest:
    name: str
    found: ProviderModel
    version: str
    client: TextClient
    tokens: int = 0
    """That the server reported, over all requests."""
    words_per_token: float = 1.0
    warnings: list[str] = field(default_factory=list)

    async def run(self) -> ModelTest:
        provider, model = self.found
        dims = int((await self._embed([text_of(1)])).rows.shape[1])
        facts = await self._facts()
        latency = await _latency(lambda: self._embed(["where was the paper made"], query=True))
        batch = min(BATCH, self.client.max_texts)
        texts = [text_of(BATCH_WORDS, seed) for seed in range(batch)]
        began = time.perf_counter()
        answer = await self._embed(texts)
        seconds = max(time.perf_counter() - began, 1e-6)
        counted = answer.tokens or batch * BATCH_WORDS
        self.words_per_token = batch * BATCH_WORDS / counted
        window, basis, truncates = await self._window(facts)
        self._compare(window, truncates)
        rate = provider.per_minute(model)
        return ModelTest(
            model=self.name,
            kind=provider.kind.value,
            version=self.version,
            dims=dims,
            window=window,
            window_basis=basis,
            truncates=truncates,
            latency_p50_ms=latency,
            texts_per_second=round(batch / seconds, 1),
            tokens_per_second=round(counted / seconds),
            rate_per_minute=rate,
            server_limits=_limits(self.client.wire.headers),
            price_per_million=provider.price or None,
            tokens_used=self.tokens,
            warnings=self.warnings,
        )

    async def _facts(self) -> ServerFacts:
        try:
            return await server_facts(*self.found)
        except LatentError:
            return UNKNOWN

    async def _window(self, facts: ServerFacts) -> tuple[int | None, WindowBasis, bool | None]:
        """Tokens of the window, how they are known, and whether longer texts are cut without an error."""
        if facts.window is None:
            return await self._search()
        words = int(facts.window * LONGER * self.words_per_token) + 1
        if words > MAX_WORDS:
            self.warnings.append(
                f"The reported window was not checked: a test sends at most {MAX_WORDS} words."
            )
            return facts.window, WindowBasis.REPORTED, None
        reading = await self._read(words)
        if reading is _Reading.WHOLE:
            self.warnings.append(
                f"The server reports a window of {facts.window} tokens ({facts.source}), but read a longer text whole."
            )
        return facts.window, WindowBasis.REPORTED, reading is _Reading.CUT

    async def _search(self) -> tuple[int | None, WindowBasis, bool | None]:
        """The longest text that is read whole, in tokens."""
        whole, longer = 0, FIRST_WORDS
        reading = await self._read(longer)
        while reading is _Reading.WHOLE:
            whole = longer
            if whole >= MAX_WORDS:
                return self._in_tokens(whole), WindowBasis.LOWER_BOUND, None
            longer = min(MAX_WORDS, longer * 2)
            reading = await self._read(longer)
        beyond = reading
        for _ in range(SEARCH_STEPS):
            middle = (whole + longer) // 2
            reading = await self._read(middle)
            if reading is _Reading.WHOLE:
                whole = middle
            else:
                longer = middle
        if beyond is _Reading.CUT:  # of the ends that differ, perhaps only the first word was read
            whole -= _ending(whole) - 1
        return self._in_tokens(whole) or None, WindowBasis.PROBED, beyond is _Reading.CUT

    def _in_tokens(self, words: int) -> int:
        return int(words / self.words_per_token)

    async def _read(self, words: int) -> _Reading:
        """How the server treats a text of so many words. One request per end: a limit may count a whole request."""
        try:
            one, other = [(await self._embed([text])).rows[0] for text in two_ends(words)]
        except InputRefused as exc:
            if not exc.too_long:
                raise
            return _Reading.REFUSED
        return _Reading.CUT if is_cut(one, other) else _Reading.WHOLE

    def _compare(self, window: int | None, truncates: bool | None) -> None:
        declared = self.found.provider.window
        place = self.found.provider.window_setting
        if truncates:
            self.warnings.append(
                "The server cuts longer texts without an error: the end of a longer chunk would be missing from its vector."
            )
        if window is not None and declared > window:
            self.warnings.append(
                f"Chunks are cut for a window of {declared} tokens, but the model reads {window}: set {place} to"
                f" {window} before you create a container."
            )

    async def _embed(self, texts: Sequence[str], *, query: bool = False) -> EmbeddingResponse:
        """One request; if the server limits requests, it is repeated when the server says."""
        for _ in range(RETRIES):
            try:
                answer = await self.client.embed(texts, query=query)
            except RateLimited as exc:
                seconds = exc.details.get("retry_after", 1.0)
                if seconds > MAX_WAIT_SECONDS:
                    raise
                await asyncio.sleep(seconds)
            else:
                self.tokens += answer.tokens
                return answer
        return await self.client.embed(texts, query=query)


def _limits(headers: Mapping[str, str]) -> dict[str, str]:
    """What the server says of its own limits, by the last part of the header."""
    prefix = "x-ratelimit-limit-"
    return {
        name.lower().removeprefix(prefix): value
        for name, value in headers.items()
        if name.lower().startswith(prefix)
    }
