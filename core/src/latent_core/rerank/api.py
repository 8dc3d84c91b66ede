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
from latent_core.redaction import OwnKey
from latent_core.rerank.dialects import SHAPES, Dialect, Named, dialect_of, endpoint_of, parse_url
from latent_core.rerank.scores import read_scores

CONNECTIONS: Final = 16
BYTES_A_SCORE: Final = 512
"""The most that one result takes in an answer, its text not counted …"""
BYTES_AROUND: Final = 64 * 1024
"""… what may stand around them …"""
ESCAPED: Final = 6
"""… and by how much a text grows that is sent back, as vLLM does, when each of its bytes is escaped."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a reranker is reached, and as whom."""

    url: str
    api_key: SecretStr | None = None
    model: str | None = None
    dialect: Dialect | None = None
    """Default: what the host is known to speak, else that of the contract."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How trouble is waited out, within the deadline of the call. Seconds."""

    attempts: int = 3
    first_wait: float = 0.2
    longest_pause: float = 300.0
    """A server that asks for more is asked again after this."""


class ApiReranker:
    """Implements ``Reranker``."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        patience: Patience = Patience(),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """``Invalid`` when the address cannot be one, or the dialect needs a model that is not named."""
        given = parse_url(endpoint.url)
        dialect = endpoint.dialect or dialect_of(given)
        self._shape = SHAPES[dialect]
        if self._shape.model is Named.ALWAYS and endpoint.model is None:
            raise Invalid(f"the {dialect} dialect names a model: set LLC_RERANK_MODEL")
        url = endpoint_of(given, dialect)
        self.name = f"the reranker at {url.host}"
        self._model = endpoint.model
        self._patience = patience
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
                for start in range(0, len(texts), self._shape.most):
                    part = texts[start : start + self._shape.most]
                    scores += await self._persist(query, part, deadline)
        except TimeoutError as exc:
            raise self._http.timed_out() from exc
        return scores

    async def _persist(self, query: str, texts: Sequence[str], deadline: float) -> list[float]:
        """Ask until there is an answer, the trouble is no passing one, or no time is left to ask again."""
        for attempt in range(1, self._patience.attempts):
            try:
                return await self._ask(query, texts)
            except (RateLimited, Unavailable) as exc:
                asked = exc.details.get("retry_after")
                seconds = self._backoff(attempt, asked)
                if asyncio.get_running_loop().time() + seconds >= deadline:
                    self._pause(asked)
                    raise
            await self._sleep(seconds)
        return await self._ask(query, texts)

    def _pause(self, asked: float | None) -> None:
        """Leave the server alone for as long as it asks, so that searches do not wait for its refusals."""
        if asked is not None:
            pause = min(asked, self._patience.longest_pause)
            self._paused_until = asyncio.get_running_loop().time() + pause

    def _refuse_while_paused(self) -> None:
        left = self._paused_until - asyncio.get_running_loop().time()
        if left > 0:
            raise LimitReached(
                f"{self.name} asked not to be called for another {left:.0f} s", retry_after=left
            )

    def _backoff(self, attempt: int, asked: float | None) -> float:
        """Full jitter, or what the server asks for."""
        if asked is not None:
            return asked
        return self._jitter(0.0, self._patience.first_wait * 2 ** (attempt - 1))

    async def _ask(self, query: str, texts: Sequence[str]) -> list[float]:
        body = self._shape.body(query, texts, self._model)
        max_bytes = BYTES_AROUND + len(texts) * BYTES_A_SCORE + ESCAPED * len(body)
        answer = await self._http.post_json(body, max_bytes=max_bytes)
        return read_scores(answer, len(texts), self.name)

    def _too_long(self, max_bytes: int) -> LatentError:
        return Invalid(
            f"{self.name} answers more than {max_bytes} bytes, which no scores need:"
            " check LLC_RERANK_API_URL"
        )

    def _refused(self, status: int, said: str) -> LatentError:
        """The error for a status that will not pass."""
        if status in (401, 403):  # what it says may show a part of the key
            told = f"{self.name} does not accept the key ({status}): check LLC_RERANK_API_KEY"
        elif 300 <= status < 400:
            told = f"{self.name} redirects ({status}): set LLC_RERANK_API_URL to the final address"
        else:
            told = (
                f"{self.name} refuses the request ({status}): {said};"
                " check LLC_RERANK_API_URL, LLC_RERANK_DIALECT and LLC_RERANK_MODEL"
            )
        return Invalid(told, upstream_status=status)

    async def close(self) -> None:
        await self._http.close()
