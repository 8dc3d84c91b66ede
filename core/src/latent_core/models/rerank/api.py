"""A reranker over HTTP, with its trouble waited out as long as the deadline allows."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import SecretStr

from latent_core.domain.errors import (
    Invalid,
    LatentError,
    LimitReached,
    RateLimited,
    Unavailable,
)
from latent_core.models.http.client import ModelHttpClient, ModelServer
from latent_core.models.http.errors import TRANSIENT
from latent_core.models.rerank.dialects import (
    SHAPES,
    Dialect,
    ModelField,
    dialect_of,
    endpoint_of,
    parse_url,
)
from latent_core.models.rerank.scores import read_scores
from latent_core.telemetry.redaction import OwnKey

CONNECTIONS: Final = 16
BYTES_PER_SCORE: Final = 512
"""The most that one result takes in an answer, its text not counted …"""
BYTES_AROUND: Final = 64 * 1024
"""… what may stand around them …"""
ESCAPED: Final = 6
"""… and by how much a text grows that is sent back, as vLLM does, when each of its bytes is escaped."""


@dataclass(frozen=True, slots=True)
class RerankEndpoint:
    """Where a reranker is reached, and as whom."""

    url: str
    api_key: SecretStr | None = None
    model: str | None = None
    dialect: Dialect | None = None
    """Default: what the host is known to speak, else that of the contract."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How trouble is waited out, within the deadline of the call. Seconds."""

    attempts: int = 3
    first_wait: float = 0.2
    longest_pause: float = 300.0
    """A server that asks for more is asked again after this."""


class ApiReranker:
    """Implements ``Reranker``."""

    def __init__(
        self,
        endpoint: RerankEndpoint,
        *,
        retry_policy: RetryPolicy = RetryPolicy(),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """``Invalid`` when the address cannot be one, or the dialect needs a model that is not named."""
        given = parse_url(endpoint.url)
        dialect = endpoint.dialect or dialect_of(given)
        self._shape = SHAPES[dialect]
        if self._shape.model is ModelField.ALWAYS and endpoint.model is None:
            raise Invalid(f"the {dialect} dialect names a model: set LLC_RERANK_MODEL")
        url = endpoint_of(given, dialect)
        self.name = f"the reranker at {url.host}"
        self._model = endpoint.model
        self._retry_policy = retry_policy
        self._paused_until = -math.inf
        """A time of the event loop."""
        self._sleep = sleep
        self._jitter = jitter
        server = ModelServer(
            name=self.name,
            url=url,
            key=OwnKey(endpoint.api_key, "LLC_RERANK_API_KEY"),
            refused=self._refused,
            too_long=self._too_long,
            transient=TRANSIENT | {424},  # TEI, when its model fails
        )
        self._http = ModelHttpClient(server, connections=CONNECTIONS)

    async def rerank(self, query: str, texts: Sequence[str], deadline: float) -> list[float]:
        """As of the port. More texts than a request may hold go in several, one after the other."""
        self._refuse_while_paused()
        scores: list[float] = []
        try:
            async with asyncio.timeout_at(deadline):
                for start in range(0, len(texts), self._shape.max_texts):
                    part = texts[start : start + self._shape.max_texts]
                    scores += await self._persist(query, part, deadline)
        except TimeoutError as exc:
            raise self._http.timed_out() from exc
        return scores

    async def _persist(self, query: str, texts: Sequence[str], deadline: float) -> list[float]:
        """Ask until there is an answer, the trouble is no passing one, or no time is left to ask again."""
        for attempt in range(1, self._retry_policy.attempts):
            try:
                return await self._ask(query, texts)
            except (RateLimited, Unavailable) as exc:
                requested_wait = exc.details.get("retry_after")
                seconds = self._backoff(attempt, requested_wait)
                if asyncio.get_running_loop().time() + seconds >= deadline:
                    self._pause(requested_wait)
                    raise
            await self._sleep(seconds)
        return await self._ask(query, texts)

    def _pause(self, requested_wait: float | None) -> None:
        """Leave the server alone for as long as it asks, so that searches do not wait for its refusals."""
        if requested_wait is not None:
            pause = min(requested_wait, self._retry_policy.longest_pause)
            self._paused_until = asyncio.get_running_loop().time() + pause

    def _refuse_while_paused(self) -> None:
        left = self._paused_until - asyncio.get_running_loop().time()
        if left > 0:
            raise LimitReached(
                f"{self.name} asked not to be called for another {left:.0f} s", retry_after=left
            )

    def _backoff(self, attempt: int, requested_wait: float | None) -> float:
        """Full jitter, or what the server asks for."""
        if requested_wait is not None:
            return requested_wait
        return self._jitter(0.0, self._retry_policy.first_wait * 2 ** (attempt - 1))

    async def _ask(self, query: str, texts: Sequence[str]) -> list[float]:
        body = self._shape.body(query, texts, self._model)
        max_bytes = BYTES_AROUND + len(texts) * BYTES_PER_SCORE + ESCAPED * len(body)
        answer = await self._http.post_json(body, max_bytes=max_bytes)
        return read_scores(answer, len(texts), self.name)

    def _too_long(self, max_bytes: int) -> LatentError:
        return Invalid(
            f"{self.name} answers more than {max_bytes} bytes, which no scores need:"
            " check LLC_RERANK_API_URL"
        )

    def _refused(self, status: int, answer_text: str) -> LatentError:
        """The error for a status that will not pass."""
        if status in (401, 403):  # what it says may show a part of the key
            message = f"{self.name} does not accept the key ({status}): check LLC_RERANK_API_KEY"
        elif 300 <= status < 400:
            message = (
                f"{self.name} redirects ({status}): set LLC_RERANK_API_URL to the final address"
            )
        else:
            message = (
                f"{self.name} refuses the request ({status}): {answer_text};"
                " check LLC_RERANK_API_URL, LLC_RERANK_DIALECT and LLC_RERANK_MODEL"
            )
        return Invalid(message, upstream_status=status)

    async def close(self) -> None:
        await self._http.close()
