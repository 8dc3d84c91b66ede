"""Requests to an embedding endpoint in any dialect, and the checks of its responses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import orjson
from pydantic import SecretStr

from latent_core.domain.errors import (
    IngestFailed,
    InputRefused,
    LatentError,
    Misconfigured,
)
from latent_core.domain.vector_types import Matrix
from latent_core.models.embedding.port import unit_rows
from latent_core.models.http.address import below_root, in_version_1, parsed_address
from latent_core.models.http.client import (
    Files,
    ModelHttpClient,
    ModelServer,
    seconds_exhausted,
)
from latent_core.telemetry.redaction import BEARER, OwnKey

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
_TOO_LONG: Final = re.compile(
    r"too (?:long|large|many tokens)|maximum|exceed|context|must have less|token", re.I
)
"""Text of servers that refuse an input for its length."""
_NO_ROUTE: Final = frozenset({404, 405})
MAX_DIMS: Final = 65_536

Rows = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class EmbeddingEndpoint:
    """Address, key and model of an embedder. A query string in ``base_url`` is kept."""

    base_url: str
    api_key: SecretStr | None
    model: str
    dims: int | None
    """None: any, all rows alike."""
    seconds: float = 60.0
    """Deadline of a request, to the last byte of its response."""
    setting: str = "LLC_EMBED_BASE_URL"
    """The setting of the address."""
    key_setting: str = "LLC_EMBED_API_KEY"
    key_header: str = BEARER


class EmbeddingWire:
    """Requests to one path of one endpoint."""

    def __init__(
        self, endpoint: EmbeddingEndpoint, path: str, *, connections: int, own_api: bool = False
    ) -> None:
        """``own_api``: ``path`` has the version of the API; else the API is in the style of OpenAI."""
        self.endpoint = endpoint
        base = parsed_address(endpoint.base_url, endpoint.setting)
        self.name = f"the embedder {endpoint.model} at {base.host}"
        key = OwnKey(endpoint.api_key, endpoint.key_setting, endpoint.key_header)
        places = [below_root(base, path)] if own_api else in_version_1(base, path)
        self._places = [
            ModelHttpClient(
                ModelServer(self.name, url, key, self._refused, self._too_long),
                connections=connections,
                seconds=endpoint.seconds,
            )
            for url in places
        ]
        """Where the path may be; the first that answers is kept."""
        self._known = len(places) == 1

    async def ask(self, request: dict[str, Any], count: int) -> Any:
        """The JSON response to ``request``, which asks for ``count`` vectors.

        ``RateLimited``, ``Unavailable`` and ``UpstreamTimeout`` are transient; ``IngestFailed`` and ``Misconfigured``
        are permanent.
        """
        body, max_bytes = orjson.dumps(request), self._max_bytes(count)
        if not self._known:
            return await self._first_answer(body, max_bytes)
        return await self._http.post_json(body, max_bytes=max_bytes)

    async def _first_answer(self, body: bytes, max_bytes: int) -> Any:
        """The answer of the first place that has the path; the first refusal if none has."""
        refusal: Misconfigured | None = None
        for place in list(self._places):
            try:
                answer = await place.post_json(body, max_bytes=max_bytes)
            except Misconfigured as exc:
                if exc.details.get("upstream_status") not in _NO_ROUTE:
                    raise
                refusal = refusal or exc
            else:
                self._places.remove(place)
                self._places.insert(0, place)
                self._known = True
                return answer
        raise refusal or RuntimeError("an endpoint has no address")

    @property
    def _http(self) -> ModelHttpClient:
        return self._places[0]

    async def ask_form(self, fields: dict[str, str], files: Files, count: int) -> Any:
        """Like ``ask``, for a form with files."""
        return await self._http.post_form(fields, files, max_bytes=self._max_bytes(count))

    def rows(self, vectors: Sequence[Any]) -> Rows:
        """``vectors`` of a response as numbers, checked against the manifest's dims."""
        dims = self.endpoint.dims
        if dims is None:
            dims = len(vectors[0]) if vectors and isinstance(vectors[0], list) else 0
        rows = np.empty((len(vectors), dims), np.float64)
        for place, vector in enumerate(vectors):
            rows[place] = self._row(vector, dims)
        return rows

    def seconds_to_pause(self) -> float:
        """The delay that the last successful response asks for: its headers say that the limit is used up."""
        return seconds_exhausted(self._http.headers) or 0.0

    @property
    def headers(self) -> Mapping[str, str]:
        """Of the last successful response."""
        return self._http.headers

    async def close(self) -> None:
        for place in self._places:
            await place.close()

    def _max_bytes(self, count: int) -> int:
        dims = self.endpoint.dims or MAX_DIMS
        return BYTES_AROUND + count * (dims * BYTES_PER_NUMBER + BYTES_AROUND)

    def _too_long(self, max_bytes: int) -> LatentError:
        return IngestFailed(
            f"{self.name} sends more than {max_bytes} bytes, too many for {self.endpoint.dims or MAX_DIMS} dimensions:"
            " check the container's dims and the embedder"
        )

    def _refused(self, status: int, answer_text: str) -> LatentError:
        """The error of a permanent refusal."""
        if status in _UNUSABLE_TEXT and not _MODEL_UNKNOWN.search(answer_text):
            refusal = InputRefused(
                f"{self.name} refuses this input ({status}): {answer_text}",
                upstream_status=status,
            )
            refusal.too_long = status == 413 or _TOO_LONG.search(answer_text) is not None
            return refusal
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

    def _row(self, vector: Any, dims: int) -> Rows:
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


class EmbeddingResponse(NamedTuple):
    rows: Matrix
    """Unit vectors, in the order of the inputs."""
    tokens: int
    """Tokens that the server reports; 0 if it reports none."""
    pause: float = 0.0
    """Seconds until the next request, because the server's limit is used up."""


class DialectClient(Protocol):
    """One dialect at one endpoint. ``RateLimited`` and ``Unavailable`` are transient; ``IngestFailed`` and
    ``Invalid`` are permanent."""

    max_texts: int
    """Per request."""

    @property
    def name(self) -> str: ...

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> EmbeddingResponse: ...

    async def close(self) -> None: ...


class ImageClient(DialectClient, Protocol):
    """A dialect that also supports pictures."""

    images_a_request: int

    async def embed_images(self, images: Sequence[bytes]) -> EmbeddingResponse: ...


def reported_tokens(answer: Any) -> int:
    """Tokens that the response reports; 0 if it reports none."""
    for path in _TOKENS:
        found = answer
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        if isinstance(found, int) and found > 0:
            return found
    return 0


_TOKENS: Final = (
    ("usage", "total_tokens"),
    ("prompt_eval_count",),  # Ollama
    ("meta", "billed_units", "input_tokens"),  # Cohere
    ("usageMetadata", "promptTokenCount"),  # Gemini
)


def answered(wire: EmbeddingWire, answer: Any, vectors: Sequence[Any]) -> EmbeddingResponse:
    """``vectors`` of a response, checked against the manifest's dims and scaled to unit length."""
    rows = unit_rows(wire.rows(vectors), wire.name)
    return EmbeddingResponse(rows, reported_tokens(answer), wire.seconds_to_pause())


def listed(wire: EmbeddingWire, items: Any, expected: int, dialect: str, where: str) -> list[Any]:
    """``items`` of a response, if they are a list of ``expected`` items."""
    if not isinstance(items, list):
        raise IngestFailed(
            f"{wire.name} does not speak {dialect}: its response has no list '{where}'"
        )
    if len(items) != expected:
        raise IngestFailed(f"{wire.name} returned {len(items)} vectors for {expected} texts")
    return items
