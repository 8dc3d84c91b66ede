"""``openai/<model>``: an embedder in the ``openai`` dialect."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from latent_core.embedding.breaker import Breaker
from latent_core.embedding.openai_wire import EmbeddingsClient
from latent_core.embedding.port import EmbeddingModel
from latent_core.embedding.prefixes import prefixes_of
from latent_core.embedding.rate import Rate
from latent_core.embedding.remote import QUERY_CONNECTIONS, Patience, RemoteEmbedder
from latent_core.embedding.wire import Endpoint


class OpenAiEmbedder(RemoteEmbedder):
    """At one endpoint, with the prefixes that its model wants."""

    def __init__(
        self,
        model: EmbeddingModel,
        endpoint: Endpoint,
        rate: Rate,
        *,
        patience: Patience = Patience(),
        breaker: Breaker | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        super().__init__(
            model,
            EmbeddingsClient(endpoint, connections=patience.requests + QUERY_CONNECTIONS),
            rate,
            patience=patience,
            prefixes=prefixes_of(endpoint.model),
            breaker=breaker,
            sleep=sleep,
            jitter=jitter,
        )
