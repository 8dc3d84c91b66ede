"""A reranker over HTTP: the dialects of servers, the scores in their responses, and retries within the deadline."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import httpx
import orjson
from pydantic import SecretStr

from latent_core.domain.errors import (
    Invalid,
    LatentError,
    LimitReached,
    RateLimited,
    Unavailable,
)
from latent_core.models.http.address import below_root, parsed_address
from latent_core.models.http.client import TRANSIENT, ModelHttpClient, ModelServer
from latent_core.telemetry.redaction import OwnKey

_VERSIONS: Final = ("/v1", "/v2")
"""An address with this ending is the base of an API."""


class Dialect(StrEnum):
    CONTRACT = "contract"
    COHERE = "cohere"
    JINA = "jina"
    VOYAGE = "voyage"
    VLLM = "vllm"
    TEI = "tei"


class ModelField(StrEnum):
    """Whether a request names the model."""

    ALWAYS = "always"
    WHEN_GIVEN = "when_given"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class RequestShape:
    """A request of one dialect."""

    path: str
    """The path if the address names only the host."""
    model: ModelField
    texts: str = "documents"
    count: str | None = "top_n"
    also: Mapping[str, Any] = field(default_factory=dict)
    max_texts: int = 1000
    """Texts per request."""

    def body(self, query: str, texts: Sequence[str], model: str | None) -> bytes:
        whole: dict[str, Any] = {"query": query, self.texts: list(texts), **self.also}
        if self.count is not None:
            whole[self.count] = len(texts)
        if model is not None and self.model is not ModelField.NEVER:
            whole["model"] = model
        return orjson.dumps(whole)


SHAPES: Final[Mapping[Dialect, RequestShape]] = {
    Dialect.CONTRACT: RequestShape(
        "", ModelField.WHEN_GIVEN, count="top_k", also={"return_documents": False}
    ),
    Dialect.COHERE: RequestShape("/v2/rerank", ModelField.ALWAYS),
    Dialect.JINA: RequestShape("/v1/rerank", ModelField.ALWAYS, also={"return_documents": False}),
    Dialect.VOYAGE: RequestShape(
        "/v1/rerank",
        ModelField.ALWAYS,
        count="top_k",
        also={"return_documents": False, "truncation": True},
    ),
    Dialect.VLLM: RequestShape(
        "/v1/rerank", ModelField.WHEN_GIVEN, also={"truncate_prompt_tokens": -1}
    ),
    Dialect.TEI: RequestShape(
        "/rerank",
        ModelField.NEVER,
        texts="texts",
        count=None,
        also={"raw_scores": False, "return_text": False, "truncate": True},
        max_texts=32,  # the default of its --max-client-batch-size
    ),
}
_HOSTS: Final = {
    "api.cohere.com": Dialect.COHERE,
    "api.cohere.ai": Dialect.COHERE,
    "api.jina.ai": Dialect.JINA,
    "api.voyageai.com": Dialect.VOYAGE,
}


def parse_url(endpoint: RerankEndpoint) -> httpx.URL:
    """The configured address; ``Invalid`` names the setting."""
    url = parsed_address(endpoint.url, endpoint.setting)
    if url.userinfo:
        raise Invalid(
            f"{endpoint.setting} contains a password: set the key as {endpoint.key_setting}"
        )
    return url


def dialect_of(url: httpx.URL) -> Dialect:
    """The dialect of a well-known host; of any other host, the contract's dialect."""
    return _HOSTS.get(url.host, Dialect.CONTRACT)


def endpoint_of(url: httpx.URL, dialect: Dialect) -> httpx.URL:
    """The address of requests: ``url`` itself, unless it is only a host or the base of an API."""
    path = url.path.rstrip("/")
    if not path:
        return url.copy_with(path=SHAPES[dialect].path or "/")
    if path.endswith(_VERSIONS) and dialect is not Dialect.CONTRACT:
        return url.copy_with(path=f"{path}/rerank")
    return url


_LISTS: Final = ("results", "data")
_SCORES: Final = ("relevance_score", "score")


def read_scores(answer: Any, texts: int, name: str) -> list[float]:
    """The scores of a response, in the order of the texts; ``Invalid`` says what is wrong with it."""
    aligned = answer.get("scores") if isinstance(answer, dict) else None
    if isinstance(aligned, list):
        _check_count(len(aligned), texts, name)
        return [_number(score, name) for score in aligned]
    items = _items(answer, name)
    _check_count(len(items), texts, name)
    scores = [math.nan] * texts
    for index, score in _indexed(items, name):
        if not 0 <= index < texts:
            raise Invalid(f"{name} returned a score for text {index} of {texts}, counted from 0")
        if not math.isnan(scores[index]):
            raise Invalid(f"{name} returned two scores for text {index}")
        scores[index] = score
    return scores


def _items(answer: Any, name: str) -> Sequence[Any]:
    if isinstance(answer, list):
        return answer
    if isinstance(answer, dict):
        for key in _LISTS:
            if isinstance(items := answer.get(key), list):
                return items
    raise Invalid(
        f"{name} returned neither 'results' nor 'scores': check its address and its dialect"
    )


def _check_count(found: int, texts: int, name: str) -> None:
    if found != texts:
        raise Invalid(f"{name} returned {found} scores for {texts} texts")


def _indexed(items: Sequence[Any], name: str) -> Iterator[tuple[int, float]]:
    for item in items:
        index = item.get("index") if isinstance(item, dict) else None
        if not isinstance(index, int) or isinstance(index, bool):
            raise Invalid(f"{name} returned a result without the index of its text")
        raw_score = next((item[key] for key in _SCORES if key in item), None)
        yield index, _number(raw_score, name)


def _number(value: Any, name: str) -> float:
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            number = float(value)
            if math.isfinite(number):
                return number
    except OverflowError:  # an integer of a thousand digits
        pass
    raise Invalid(f"{name} returned a score that is not a finite number")


CONNECTIONS: Final = 16
BYTES_PER_SCORE: Final = 512
"""Upper bound for one result in a response, without its text."""
BYTES_AROUND: Final = 64 * 1024
"""Upper bound for the rest of a response."""
ESCAPED: Final = 6
"""How much a text grows if the server returns it (vLLM does) with every byte escaped."""


@dataclass(frozen=True, slots=True)
class RerankEndpoint:
    """Address, key, model and dialect of a reranker."""

    url: str
    api_key: SecretStr | None = None
    model: str | None = None
    dialect: Dialect | None = None
    """Default: the known dialect of the host, else the contract's."""
    whole_address: bool = True
    """Whether ``url`` may have the path of the requests; else it is a base address, with or without a version."""
    setting: str = "LLC_RERANK_API_URL"
    """The setting of the address …"""
    key_setting: str = "LLC_RERANK_API_KEY"
    model_setting: str = "LLC_RERANK_MODEL"
    others: str = "LLC_RERANK_DIALECT and LLC_RERANK_MODEL"
    """… and what else to check when requests are refused."""


@dataclass(frozen=True, slots=True)
class RerankRetryPolicy:
    """How errors are retried within the deadline of the call. Times in seconds."""

    attempts: int = 3
    first_wait: float = 0.2
    longest_pause: float = 300.0
    """Caps the pause that a server asks for."""


class ApiReranker:
    """Implements ``Reranker``."""

    def __init__(
        self,
        endpoint: RerankEndpoint,
        *,
        retry_policy: RerankRetryPolicy = RerankRetryPolicy(),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """``Invalid`` for an unusable address, or a missing model that the dialect needs."""
        given = parse_url(endpoint)
        dialect = endpoint.dialect or dialect_of(given)
        self._shape = SHAPES[dialect]
        if self._shape.model is ModelField.ALWAYS and endpoint.model is None:
            raise Invalid(f"the {dialect} dialect needs a model: set {endpoint.model_setting}")
        if endpoint.whole_address:
            url = endpoint_of(given, dialect)
        else:
            url = below_root(given, self._shape.path)
        self._endpoint = endpoint
        self.name = f"the reranker at {url.host}"
        self._model = endpoint.model
        self._retry_policy = retry_policy
        self._paused_until = -math.inf
        """In the event loop's time."""
        self._sleep = sleep
        self._jitter = jitter
        server = ModelServer(
            name=self.name,
            url=url,
            key=OwnKey(endpoint.api_key, endpoint.key_setting),
            refused=self._refused,
            too_long=self._too_long,
            transient=TRANSIENT | {424},  # TEI, when its model fails
        )
        self._http = ModelHttpClient(server, connections=CONNECTIONS)

    async def rerank(self, query: str, texts: Sequence[str], deadline: float) -> list[float]:
        """As in ``Reranker``. More texts than one request may hold are sent in several, one after the other."""
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
        """Retry transient errors while the deadline leaves time for another request."""
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
        """Skip the server for as long as it asks, so that searches do not wait for its refusals."""
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
        """Full jitter, or the wait that the server asks for."""
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
            f"{self.name} sends more than {max_bytes} bytes, too many for scores:"
            f" check {self._endpoint.setting}"
        )

    def _refused(self, status: int, answer_text: str) -> LatentError:
        """The error of a permanent refusal."""
        own = self._endpoint
        if status in (401, 403):  # the server's text may show a part of the key
            message = f"{self.name} does not accept the key ({status}): check {own.key_setting}"
        elif 300 <= status < 400:
            message = f"{self.name} redirects ({status}): set {own.setting} to the final address"
        else:
            message = (
                f"{self.name} refuses the request ({status}): {answer_text};"
                f" check {own.setting}, {own.others}"
            )
        return Invalid(message, upstream_status=status)

    async def close(self) -> None:
        await self._http.close()
