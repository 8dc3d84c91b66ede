"""One request to an embedder over HTTP, whatever its dialect, and what can be wrong with the answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import httpx
import numpy as np
import orjson
from pydantic import SecretStr

from latent_core.domain.chunk import Matrix
from latent_core.domain.errors import (
    IngestFailed,
    Invalid,
    LatentError,
    Misconfigured,
)
from latent_core.models.embedding.port import unit_rows
from latent_core.models.http.client import Files, ModelHttpClient, ModelServer
from latent_core.telemetry.redaction import OwnKey

BYTES_PER_NUMBER: Final = 40
"""The most that a number and its white space take in an answer …"""
BYTES_AROUND: Final = 64 * 1024
"""… and what may stand around them."""
_UNUSABLE_TEXT: Final = frozenset({400, 413, 422})
_MODEL_UNKNOWN: Final = re.compile(
    r"model.{0,80}(not.found|does not exist|not exist|unknown|not.supported)|(unknown|no such) model",
    re.I,
)
"""Not every server says 404 then."""

Rows = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class EmbeddingEndpoint:
    """Where an embedder is reached, and as whom. A query of ``base_url`` is kept."""

    base_url: str
    api_key: SecretStr | None
    model: str
    dims: int
    seconds: float = 60.0
    """For one request, from its first byte to the answer's last."""
    setting: str = "LLC_EMBED_BASE_URL"
    """What gave the address …"""
    key_setting: str = "LLC_EMBED_API_KEY"
    """… and the key."""


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
        """The JSON of the answer to ``request``, which asks for so many vectors.

        ``RateLimited``, ``Unavailable`` and ``UpstreamTimeout`` may pass; ``IngestFailed`` and ``Misconfigured``
        will not.
        """
        body = orjson.dumps(request)
        return await self._http.post_json(body, max_bytes=self._max_bytes(count))

    async def ask_form(self, fields: dict[str, str], files: Files, count: int) -> Any:
        """The same for a form with files."""
        return await self._http.post_form(fields, files, max_bytes=self._max_bytes(count))

    def rows(self, vectors: Sequence[Any]) -> Rows:
        """``vectors`` of an answer as numbers, of the width that the manifest says."""
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
            f"{self.name} answers more than {max_bytes} bytes, which {self.endpoint.dims} dimensions"
            " cannot need: check the container's dims and the embedder"
        )

    def _refused(self, status: int, answer_text: str) -> LatentError:
        """The error for a status that will not pass."""
        if status in _UNUSABLE_TEXT and not _MODEL_UNKNOWN.search(answer_text):
            return IngestFailed(
                f"{self.name} refuses what it is to embed ({status}): {answer_text}",
                upstream_status=status,
            )
        setting, remedy = self._remedy(status)
        return Misconfigured(
            f"{self.name} is misconfigured here: it refuses the request ({status}): {answer_text}; {remedy}, restart, and"
            " try what failed again (latent jobs requeue --failed)",
            upstream_status=status,
            setting=setting,
        )

    def _remedy(self, status: int) -> tuple[str, str]:
        """What is to be changed, and how."""
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
            raise IngestFailed(f"{self.name} answered an embedding that is not a list of numbers")
        if len(vector) != dims:
            raise IngestFailed(
                f"{self.name} answers {len(vector)} dimensions, but the container's manifest says {dims}:"
                f" make a container with dims: {len(vector)}",
                expected=dims,
                found=len(vector),
            )
        try:
            row = np.array(vector, np.float64)
        except (ValueError, TypeError, OverflowError) as exc:
            raise IngestFailed(
                f"{self.name} answered an embedding with values that are no numbers"
            ) from exc
        if row.ndim != 1:
            raise IngestFailed(f"{self.name} answered an embedding of lists, not of numbers")
        return row


def reported_tokens(answer: Any) -> int:
    """What the answer says it cost; 0 when it says nothing."""
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
    """Unit vectors, in the order of what was sent."""
    tokens: int
    """What the server says it cost; 0 when it says nothing."""


class DialectClient(Protocol):
    """One dialect at one endpoint. ``RateLimited`` and ``Unavailable`` may pass; ``IngestFailed`` and
    ``Invalid`` will not."""

    @property
    def name(self) -> str: ...

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> EmbeddingResponse: ...

    async def close(self) -> None: ...


class ImageClient(DialectClient, Protocol):
    """A dialect that takes pictures, too."""

    images_a_request: int

    async def embed_images(self, images: Sequence[bytes]) -> EmbeddingResponse: ...


def answered(wire: EmbeddingWire, answer: Any, vectors: Sequence[Any]) -> EmbeddingResponse:
    """``vectors`` of an answer, of the width that the manifest says and of unit length."""
    return EmbeddingResponse(unit_rows(wire.rows(vectors), wire.name), reported_tokens(answer))


def listed(wire: EmbeddingWire, answer: Any, key: str, expected: int, dialect: str) -> list[Any]:
    """The list that stands under ``key``, an item for each that was asked for."""
    items = answer.get(key) if isinstance(answer, dict) else None
    if not isinstance(items, list):
        raise IngestFailed(f"{wire.name} does not speak {dialect}: its answer has no list '{key}'")
    if len(items) != expected:
        raise IngestFailed(f"{wire.name} answered {len(items)} vectors for {expected} texts")
    return items
