"""``openai/<model>``: an embedder in the ``openai`` dialect."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from latent_core.models.embedding.api.breaker import Breaker
from latent_core.models.embedding.api.openai_wire import EmbeddingsClient
from latent_core.models.embedding.api.remote import QUERY_CONNECTIONS, RemoteEmbedder, RetryPolicy
from latent_core.models.embedding.api.wire import EmbeddingEndpoint
from latent_core.models.embedding.port import EmbeddingModel
from latent_core.models.embedding.prefixes import prefixes_of
from latent_core.models.embedding.rate import Rate


class OpenAiEmbedder(RemoteEmbedder):
    """At one endpoint, with the prefixes that its model wants."""

    def __init__(
        self,
        model: EmbeddingModel,
        endpoint: EmbeddingEndpoint,
        rate: Rate,
        *,
        retry_policy: RetryPolicy = RetryPolicy(),
        breaker: Breaker | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        super().__init__(
            model,
            EmbeddingsClient(endpoint, connections=retry_policy.requests + QUERY_CONNECTIONS),
            rate,
            retry_policy=retry_policy,
            prefixes=prefixes_of(endpoint.model),
            breaker=breaker,
            sleep=sleep,
            jitter=jitter,
        )
