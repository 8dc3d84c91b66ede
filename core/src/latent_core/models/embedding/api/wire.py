"""Requests to an embedding endpoint in any dialect, and the checks of its responses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import httpx
import numpy as np
import orjson
from pydantic import SecretStr

from latent_core.domain.errors import (
    IngestFailed,
    Invalid,
    LatentError,
    Misconfigured,
)
from latent_core.domain.vector_types import Matrix
from latent_core.models.embedding.port import unit_rows
from latent_core.models.http.client import Files, ModelHttpClient, ModelServer
from latent_core.telemetry.redaction import OwnKey

BYTES_PER_NUMBER: Final = 40
"""Upper bound for a number and its white space in a response."""
BYTES_AROUND: Final = 64 * 1024
"""Upper bound for the rest of a response, and per vector."""
_UNUSABLE_TEXT: Final = frozenset({400, 413, 422})
_MODEL_UNKNOWN: Final = re.compile(
    r"model.{0,80}(not.found|does not exist|not exist|unknown|not.supported)|(unknown|no such) model",
    re.I,
)
"""Text of servers that do not answer 404 for an unknown model."""

Rows = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class EmbeddingEndpoint:
    """Address, key and model of an embedder. A query string in ``base_url`` is kept."""

    base_url: str
    api_key: SecretStr | None
    model: str
    dims: int
    seconds: float = 60.0
    """Deadline of a request, to the last byte of its response."""
    setting: str = "LLC_EMBED_BASE_URL"
    """The setting of the address."""
    key_setting: str = "LLC_EMBED_API_KEY"


class EmbeddingWire:
    """Requests to one path of one endpoint."""

    def __init__(self, endpoint: EmbeddingEndpoint, path: str, *, connections: int) -> None:
        self.endpoint = endpoint
        url = _url(endpoint, path)
        self.name = f"the embedder {endpoint.model} at {url.host}"
        server = ModelServer(
            name=self.name,
            url=url,
            key=OwnKey(endpoint.api_key, endpoint.key_setting),
            refused=self._refused,
            too_long=self._too_long,
        )
        self._http = ModelHttpClient(server, connections=connections, seconds=endpoint.seconds)

    async def ask(self, request: dict[str, Any], count: int) -> Any:
        """The JSON response to ``request``, which asks for ``count`` vectors.

        ``RateLimited``, ``Unavailable`` and ``UpstreamTimeout`` are transient; ``IngestFailed`` and ``Misconfigured``
        are permanent.
        """
        body = orjson.dumps(request)
        return await self._http.post_json(body, max_bytes=self._max_bytes(count))

    async def ask_form(self, fields: dict[str, str], files: Files, count: int) -> Any:
        """Like ``ask``, for a form with files."""
        return await self._http.post_form(fields, files, max_bytes=self._max_bytes(count))

    def rows(self, vectors: Sequence[Any]) -> Rows:
        """``vectors`` of a response as numbers, checked against the manifest's dims."""
        rows = np.empty((len(vectors), self.endpoint.dims), np.float64)
        for place, vector in enumerate(vectors):
            rows[place] = self._row(vector)
        return rows

    async def close(self) -> None:
        await self._http.close()

    def _max_bytes(self, count: int) -> int:
        return BYTES_AROUND + count * (self.endpoint.dims * BYTES_PER_NUMBER + BYTES_AROUND)

    def _too_long(self, max_bytes: int) -> LatentError:
        return IngestFailed(
            f"{self.name} sends more than {max_bytes} bytes, too many for {self.endpoint.dims} dimensions:"
            " check the container's dims and the embedder"
        )

    def _refused(self, status: int, answer_text: str) -> LatentError:
        """The error of a permanent refusal."""
        if status in _UNUSABLE_TEXT and not _MODEL_UNKNOWN.search(answer_text):
            return IngestFailed(
                f"{self.name} refuses this input ({status}): {answer_text}",
                upstream_status=status,
            )
        setting, remedy = self._remedy(status)
        return Misconfigured(
            f"{self.name} is misconfigured here: it refuses the request ({status}): {answer_text}; {remedy}, restart, and"
            " requeue the failed jobs (latent jobs requeue --failed)",
            upstream_status=status,
            setting=setting,
        )

    def _remedy(self, status: int) -> tuple[str, str]:
        """The setting to change, and how."""
        address, key = self.endpoint.setting, self.endpoint.key_setting
        if status in (401, 403):
            return key, f"check {key}"
        if 300 <= status < 400:
            return address, f"redirects are not followed: set {address} to the final address"
        if status in (404, *_UNUSABLE_TEXT):
            return address, f"check {address}, and that it serves the model '{self.endpoint.model}'"
        return address, f"check {address} and the container's embedder"

    def _row(self, vector: Any) -> Rows:
        dims = self.endpoint.dims
        if not isinstance(vector, list):
            raise IngestFailed(f"{self.name} returned an embedding that is not a list of numbers")
        if len(vector) != dims:
            raise IngestFailed(
                f"{self.name} returns {len(vector)} dimensions, but the container's manifest says {dims}:"
                f" create a container with dims: {len(vector)}",
                expected=dims,
                found=len(vector),
            )
        try:
            row = np.array(vector, np.float64)
        except (ValueError, TypeError, OverflowError) as exc:
            raise IngestFailed(
                f"{self.name} returned an embedding with values that are not numbers"
            ) from exc
        if row.ndim != 1:
            raise IngestFailed(f"{self.name} returned an embedding of lists, not of numbers")
        return row


def reported_tokens(answer: Any) -> int:
    """Tokens that the response reports; 0 if it reports none."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    total_tokens = usage.get("total_tokens") if isinstance(usage, dict) else None
    return total_tokens if isinstance(total_tokens, int) and total_tokens > 0 else 0


def _url(endpoint: EmbeddingEndpoint, path: str) -> httpx.URL:
    try:
        url = httpx.URL(endpoint.base_url)
    except httpx.InvalidURL as exc:
        raise Invalid(f"{endpoint.setting} cannot be read: {exc}") from exc
    if url.scheme not in ("http", "https") or not url.host:
        raise Invalid(f"{endpoint.setting} must be an http:// or https:// address")
    return url.copy_with(path=url.path.rstrip("/") + path)


class EmbeddingResponse(NamedTuple):
    rows: Matrix
    """Unit vectors, in the order of the inputs."""
    tokens: int
    """Tokens that the server reports; 0 if it reports none."""


class DialectClient(Protocol):
    """One dialect at one endpoint. ``RateLimited`` and ``Unavailable`` are transient; ``IngestFailed`` and
    ``Invalid`` are permanent."""

    @property
    def name(self) -> str: ...

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> EmbeddingResponse: ...

    async def close(self) -> None: ...


class ImageClient(DialectClient, Protocol):
    """A dialect that also supports pictures."""

    images_a_request: int

    async def embed_images(self, images: Sequence[bytes]) -> EmbeddingResponse: ...


def answered(wire: EmbeddingWire, answer: Any, vectors: Sequence[Any]) -> EmbeddingResponse:
    """``vectors`` of a response, checked against the manifest's dims and scaled to unit length."""
    return EmbeddingResponse(unit_rows(wire.rows(vectors), wire.name), reported_tokens(answer))


def listed(wire: EmbeddingWire, answer: Any, key: str, expected: int, dialect: str) -> list[Any]:
    """The list under ``key`` of a response, with ``expected`` items."""
    items = answer.get(key) if isinstance(answer, dict) else None
    if not isinstance(items, list):
        raise IngestFailed(
            f"{wire.name} does not speak {dialect}: its response has no list '{key}'"
        )
    if len(items) != expected:
        raise IngestFailed(f"{wire.name} returned {len(items)} vectors for {expected} texts")
    return items
