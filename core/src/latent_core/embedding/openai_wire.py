"""One request of the ``openai`` dialect: ``POST {base}/embeddings``, and what can be wrong with its answer.

The dialect of OpenAI, vLLM, TEI, Infinity, Ollama and of nomic-embed-multimodal-7b's contract.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx
import numpy as np
import orjson
from pydantic import SecretStr

from latent_core.domain.errors import IngestFailed, Invalid, LatentError, RateLimited, Unavailable
from latent_core.domain.retry_after import seconds_to_wait
from latent_core.domain.vector import Matrix
from latent_core.embedding.unit import unit_rows

CONNECT_SECONDS: Final = 10.0
BYTES_A_NUMBER: Final = 40
"""The most that a number and its white space take in an answer …"""
BYTES_AROUND: Final = 64 * 1024
"""… and what may stand around them."""
_SAID: Final = 200
_TRY_AGAIN: Final = frozenset({408, 409, 425})
_UNUSABLE_TEXT: Final = frozenset({400, 413, 422})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an embedder is reached, and as whom. A query of ``base_url`` is kept."""

    base_url: str
    api_key: SecretStr | None
    model: str
    dims: int
    seconds: float = 60.0
    """For one request, from its first byte to the answer's last."""


class EmbeddingsClient:
    """Sends requests to one endpoint. Proxies and credentials of the environment are not used, redirects not followed."""

    def __init__(self, endpoint: Endpoint, *, connections: int) -> None:
        self._endpoint = endpoint
        self._url = _embeddings_url(endpoint.base_url)
        self._headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if endpoint.api_key is not None:
            self._headers["Authorization"] = f"Bearer {endpoint.api_key.get_secret_value()}"
        self._http = httpx.AsyncClient(
            trust_env=False,
            follow_redirects=False,
            timeout=httpx.Timeout(endpoint.seconds, connect=CONNECT_SECONDS),
            limits=httpx.Limits(max_connections=connections),
        )

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """Unit vectors of ``texts``, in order.

        ``RateLimited`` and ``Unavailable`` may pass; ``IngestFailed`` and ``Invalid`` will not.
        """
        body = orjson.dumps({"model": self._endpoint.model, "input": list(texts)})
        try:
            async with asyncio.timeout(self._endpoint.seconds):
                answer = await self._post(body, len(texts))
        except (TimeoutError, httpx.TimeoutException) as exc:
            raise Unavailable(f"{self._name} did not answer within its deadline") from exc
        except httpx.HTTPError as exc:
            raise Unavailable(
                f"{self._name} cannot be reached: {str(exc) or type(exc).__name__}"
            ) from exc
        rows = _rows(answer, len(texts), self._endpoint.dims, self._name)
        return unit_rows(rows, self._name)

    @property
    def _name(self) -> str:
        return f"the embedder {self._endpoint.model} at {self._url.host}"

    async def _post(self, body: bytes, texts: int) -> Any:
        request = self._http.stream("POST", self._url, content=body, headers=self._headers)
        async with request as response:
            most = BYTES_AROUND + texts * (self._endpoint.dims * BYTES_A_NUMBER + BYTES_AROUND)
            content = await self._read(
                response, most if response.status_code == 200 else BYTES_AROUND
            )
        if response.status_code != 200:
            raise _refusal(response, content, self._name)
        try:
            return _parsed(content)
        except ValueError as exc:
            raise Unavailable(f"{self._name} sent an answer that is not whole JSON: {exc}") from exc

    async def _read(self, response: httpx.Response, most: int) -> bytes:
        content = bytearray()
        async for piece in response.aiter_bytes():
            content += piece
            if len(content) > most:
                if response.status_code != 200:
                    break
                raise IngestFailed(
                    f"{self._name} answers more than {most} bytes, which {self._endpoint.dims} dimensions"
                    " cannot need: check the container's dims and the embedder"
                )
        return bytes(content)

    async def close(self) -> None:
        await self._http.aclose()


def _embeddings_url(base: str) -> httpx.URL:
    try:
        url = httpx.URL(base)
    except httpx.InvalidURL as exc:
        raise Invalid(f"LLC_EMBED_BASE_URL cannot be read: {exc}") from exc
    if url.scheme not in ("http", "https") or not url.host:
        raise Invalid("LLC_EMBED_BASE_URL must be an http:// or https:// address")
    return url.copy_with(path=url.path.rstrip("/") + "/embeddings")


def _parsed(content: bytes) -> Any:
    """The JSON of an answer. The slow parser reads the ``NaN`` of sloppy servers, to be refused by name later."""
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return json.loads(content)


def _refusal(response: httpx.Response, content: bytes, name: str) -> LatentError:
    """The error for an answer that is not a success."""
    status = response.status_code
    said = " ".join(content[:_SAID].decode("utf-8", "replace").split())
    if status == 429:
        seconds = seconds_to_wait(response.headers.get("Retry-After"))
        details = {} if seconds is None else {"retry_after": seconds}
        return RateLimited(
            f"{name} accepts no more texts now (429): {said}", upstream_status=status, **details
        )
    if status >= 500 or status in _TRY_AGAIN:
        return Unavailable(f"{name} failed ({status}): {said}", upstream_status=status)
    if status in _UNUSABLE_TEXT:
        return IngestFailed(f"{name} refuses the text ({status}): {said}", upstream_status=status)
    remedy = "check LLC_EMBED_BASE_URL and the container's embedder"
    if status in (401, 403):
        remedy = "check LLC_EMBED_API_KEY"
    elif 300 <= status < 400:
        remedy = "redirects are not followed: set LLC_EMBED_BASE_URL to the final address"
    return Invalid(
        f"{name} refuses the request ({status}): {said}; {remedy}", upstream_status=status
    )


def _rows(answer: Any, texts: int, dims: int, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The vectors of an answer in the order of the texts, not yet of unit length."""
    items = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise IngestFailed(
            f"{name} does not speak the openai dialect: its answer has no list 'data'"
        )
    if len(items) != texts:
        raise IngestFailed(f"{name} answered {len(items)} vectors for {texts} texts")
    order = [item.get("index", place) for place, item in enumerate(items)]
    whole = all(isinstance(index, int) for index in order)
    if not whole or sorted(order) != list(range(texts)):
        raise IngestFailed(f"{name} answered indices that are not 0 to {texts - 1}, each once")
    rows = np.empty((texts, dims), np.float64)
    for index, item in zip(order, items, strict=True):
        rows[index] = _row(item.get("embedding"), dims, name)
    return rows


def _row(vector: Any, dims: int, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    if not isinstance(vector, list):
        raise IngestFailed(f"{name} answered an embedding that is not a list of numbers")
    if len(vector) != dims:
        raise IngestFailed(
            f"{name} answers {len(vector)} dimensions, but the container's manifest says {dims}:"
            f" make a container with dims: {len(vector)}",
            expected=dims,
            found=len(vector),
        )
    try:
        row = np.array(vector, np.float64)
    except (ValueError, TypeError, OverflowError) as exc:
        raise IngestFailed(f"{name} answered an embedding with values that are no numbers") from exc
    if row.ndim != 1:
        raise IngestFailed(f"{name} answered an embedding of lists, not of numbers")
    return row
