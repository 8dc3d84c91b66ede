"""One request to an embedder over HTTP, whatever its dialect, and what can be wrong with the answer."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

import httpx
import numpy as np
import orjson
from pydantic import SecretStr

from latent_core.domain.errors import (
    IngestFailed,
    Invalid,
    LatentError,
    LimitReached,
    Misconfigured,
    Unreachable,
    UpstreamError,
    UpstreamOverload,
)
from latent_core.domain.retry_after import seconds_to_wait
from latent_core.domain.service_health import ServiceHealth
from latent_core.redaction import OwnKey

CONNECT_SECONDS: Final = 10.0
BYTES_A_NUMBER: Final = 40
"""The most that a number and its white space take in an answer …"""
BYTES_AROUND: Final = 64 * 1024
"""… and what may stand around them."""
_TRY_AGAIN: Final = frozenset({408, 409, 425})
_UNUSABLE_TEXT: Final = frozenset({400, 413, 422})
_MODEL_UNKNOWN: Final = re.compile(
    r"model.{0,80}(not.found|does not exist|not exist|unknown|not.supported)|(unknown|no such) model",
    re.I,
)
"""Not every server says 404 then."""

Rows = np.ndarray[Any, np.dtype[np.float64]]
Files = Sequence[tuple[str, tuple[str, bytes, str]]]
"""Of a form: field, and the file's name, bytes and media type."""


@dataclass(frozen=True, slots=True)
class Endpoint:
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


class Wire:
    """Requests to one path of one endpoint. Proxies and credentials of the environment are not used, redirects not followed."""

    def __init__(self, endpoint: Endpoint, path: str, *, connections: int) -> None:
        self.endpoint = endpoint
        self._url = _url(endpoint, path)
        self._key = OwnKey(endpoint.api_key, endpoint.key_setting)
        self._headers = {"Accept-Encoding": "identity", **self._key.header}
        self._health = ServiceHealth()
        self._http = httpx.AsyncClient(
            trust_env=False,
            follow_redirects=False,
            timeout=httpx.Timeout(endpoint.seconds, connect=CONNECT_SECONDS),
            limits=httpx.Limits(max_connections=connections),
        )

    @property
    def name(self) -> str:
        return f"the embedder {self.endpoint.model} at {self._url.host}"

    async def ask(self, request: dict[str, Any], asked: int) -> Any:
        """The JSON of the answer to ``request``, which asks for so many vectors.

        ``RateLimited``, ``Unavailable`` and ``UpstreamTimeout`` may pass; ``IngestFailed`` and ``Misconfigured``
        will not.
        """
        headers = {**self._headers, "Content-Type": "application/json"}
        return await self._asked(
            self._http.build_request(
                "POST", self._url, content=orjson.dumps(request), headers=headers
            ),
            asked,
        )

    async def ask_form(self, fields: dict[str, str], files: Files, asked: int) -> Any:
        """The same for a form with files."""
        return await self._asked(
            self._http.build_request(
                "POST", self._url, data=fields, files=files, headers=self._headers
            ),
            asked,
        )

    async def _asked(self, request: httpx.Request, asked: int) -> Any:
        try:
            async with asyncio.timeout(self.endpoint.seconds):
                answer = await self._sent(request, asked)
        except httpx.ConnectTimeout as exc:
            raise Unreachable(
                f"{self.name} cannot be reached within {CONNECT_SECONDS:g} s"
            ) from exc
        except (TimeoutError, httpx.TimeoutException) as exc:
            raise self._health.timeout(f"{self.name} did not answer within its deadline") from exc
        except httpx.HTTPError as exc:
            why = self._key.hidden_in(str(exc)) or type(exc).__name__
            if isinstance(exc, httpx.ConnectError):
                raise Unreachable(f"{self.name} cannot be reached: {why}") from exc
            raise UpstreamError(f"{self.name} broke off the connection: {why}") from exc
        self._health.succeeded()
        return answer

    def rows(self, vectors: Sequence[Any]) -> Rows:
        """``vectors`` of an answer as numbers, of the width that the manifest says."""
        rows = np.empty((len(vectors), self.endpoint.dims), np.float64)
        for place, vector in enumerate(vectors):
            rows[place] = self._row(vector)
        return rows

    async def close(self) -> None:
        await self._http.aclose()

    async def _sent(self, request: httpx.Request, asked: int) -> Any:
        async with aclosing(await self._http.send(request, stream=True)) as response:
            most = BYTES_AROUND + asked * (self.endpoint.dims * BYTES_A_NUMBER + BYTES_AROUND)
            good = response.status_code == 200
            content = await self._read(response, most if good else BYTES_AROUND)
        if not good:
            raise self._refusal(response, content)
        try:
            return _parsed(content)
        except (ValueError, RecursionError) as exc:
            raise UpstreamError(
                f"{self.name} sent an answer that is not whole JSON: {exc}"
            ) from exc

    async def _read(self, response: httpx.Response, most: int) -> bytes:
        content = bytearray()
        async for piece in response.aiter_bytes():
            content += piece
            if len(content) > most:
                if response.status_code != 200:
                    break
                raise IngestFailed(
                    f"{self.name} answers more than {most} bytes, which {self.endpoint.dims} dimensions"
                    " cannot need: check the container's dims and the embedder"
                )
        return bytes(content)

    def _refusal(self, response: httpx.Response, content: bytes) -> LatentError:
        """The error for an answer that is not a success."""
        status = response.status_code
        said = self._key.said(content)
        seconds = seconds_to_wait(response.headers.get("Retry-After"))
        details = {} if seconds is None else {"retry_after": seconds}
        if status == 429:
            return LimitReached(
                f"{self.name} accepts no more now (429): {said}",
                upstream_status=status,
                **details,
            )
        if status >= 500 or status in _TRY_AGAIN:
            failed = UpstreamOverload if status == 503 and details else UpstreamError
            return failed(
                f"{self.name} failed ({status}): {said}", upstream_status=status, **details
            )
        if status in _UNUSABLE_TEXT and not _MODEL_UNKNOWN.search(said):
            return IngestFailed(
                f"{self.name} refuses what it is to embed ({status}): {said}",
                upstream_status=status,
            )
        setting, remedy = self._remedy(status)
        return Misconfigured(
            f"{self.name} is misconfigured here: it refuses the request ({status}): {said}; {remedy}, restart, and"
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


def tokens_told(answer: Any) -> int:
    """What the answer says it cost; 0 when it says nothing."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    told = usage.get("total_tokens") if isinstance(usage, dict) else None
    return told if isinstance(told, int) and told > 0 else 0


def _url(endpoint: Endpoint, path: str) -> httpx.URL:
    try:
        url = httpx.URL(endpoint.base_url)
    except httpx.InvalidURL as exc:
        raise Invalid(f"{endpoint.setting} cannot be read: {exc}") from exc
    if url.scheme not in ("http", "https") or not url.host:
        raise Invalid(f"{endpoint.setting} must be an http:// or https:// address")
    return url.copy_with(path=url.path.rstrip("/") + path)


def _parsed(content: bytes) -> Any:
    """The JSON of an answer. The slow parser reads the ``NaN`` of sloppy servers, to be refused by name later."""
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return json.loads(content)
