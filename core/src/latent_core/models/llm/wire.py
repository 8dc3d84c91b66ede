"""Requests to a language model's server: where its path is, deadlines, and the errors of what it refuses."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

import orjson
from pydantic import SecretStr

from latent_core.domain.errors import (
    InputRefused,
    LatentError,
    LimitReached,
    MalformedAnswer,
    Misconfigured,
    UpstreamError,
    UpstreamOverload,
)
from latent_core.models.http.address import in_version_1, parsed_address
from latent_core.models.http.client import Files, ModelHttpClient, ModelServer
from latent_core.telemetry.redaction import BEARER, OwnKey

MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
JSON: Final = "application/json"
_NO_ROUTE: Final = (404, 405)
_OF_THE_REQUEST: Final = (400, 413, 422)
_NOT_OF_THE_REQUEST: Final = re.compile(
    r"model\b.{0,80}\b(?:not found|not exist|unknown|not supported)|unknown model|no such model|billing|credit balance"
    r"|quota|api.?key",
    re.I,
)
"""A refusal for a reason that no other request can change."""
_TOO_LONG: Final = re.compile(
    r"context|too long|too large|too many tokens|maximum.{0,40}tokens", re.I
)


@dataclass(frozen=True, slots=True)
class ModelEndpoint:
    """A model at its server."""

    name: str
    """``<provider>/<model>``."""
    model: str
    """Its name on the server."""
    base_url: str
    api_key: SecretStr | None = None
    reads_pdf: bool = False
    reads_images: bool = False
    connections: int = 8
    setting: str = "base_url"
    """The setting of the address."""
    key_setting: str = "key_file"
    key_header: str = BEARER


class ModelWire:
    """Requests to one path of one endpoint."""

    def __init__(
        self, endpoint: ModelEndpoint, path: str, headers: Mapping[str, str] | None = None
    ) -> None:
        """``path`` is below the API's version. ``headers``: of all requests."""
        self.endpoint = endpoint
        base = parsed_address(endpoint.base_url, endpoint.setting)
        self.name = f"the language model {endpoint.name} at {base.host}"
        key = OwnKey(endpoint.api_key, endpoint.key_setting, endpoint.key_header)
        self._key = key
        self._places = [
            ModelHttpClient(
                ModelServer(self.name, url, key, self._refused, self._too_long),
                connections=endpoint.connections,
                headers=headers,
            )
            for url in in_version_1(base, path)
        ]
        """Where the path may be; the first that answers is kept."""

    async def ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """The JSON object that answers ``request``."""
        body = orjson.dumps(request)

        def post(place: ModelHttpClient) -> Awaitable[Any]:
            return place.post_json(body, max_bytes=MAX_ANSWER_BYTES, media_type=JSON)

        return await self._within(seconds, post)

    async def ask_form(
        self, fields: Mapping[str, str], files: Files, seconds: float
    ) -> dict[str, Any]:
        """As ``ask``, for a form with files."""

        def post(place: ModelHttpClient) -> Awaitable[Any]:
            return place.post_form(dict(fields), files, max_bytes=MAX_ANSWER_BYTES, media_type=JSON)

        return await self._within(seconds, post)

    async def events(self, request: Mapping[str, Any], seconds: float) -> AsyncGenerator[Any, None]:
        """The JSON of each event that answers ``request``, with its errors raised. ``[DONE]`` is None."""
        body = orjson.dumps(request)
        deadline = asyncio.get_running_loop().time() + seconds
        refusal: Misconfigured | None = None
        for place in list(self._places):
            events = place.events(body, max_bytes=MAX_ANSWER_BYTES, deadline=deadline)
            try:
                async with aclosing(events):
                    async for data in events:
                        self._keep(place)
                        yield self._event(data)
                return
            except Misconfigured as exc:
                if exc.details.get("upstream_status") not in _NO_ROUTE:
                    raise
                refusal = refusal or exc
        raise refusal or RuntimeError("an endpoint has no address")

    def malformed(self, why: str) -> MalformedAnswer:
        """The error of an answer that is no answer."""
        return MalformedAnswer(f"{self.name} sent an answer that cannot be read: {why}")

    async def close(self) -> None:
        for place in self._places:
            await place.close()

    async def _within(
        self, seconds: float, post: Callable[[ModelHttpClient], Awaitable[Any]]
    ) -> dict[str, Any]:
        try:
            async with asyncio.timeout(seconds):
                answer = await self._first_answer(post)
        except TimeoutError as exc:
            raise self._places[0].timed_out() from exc
        if not isinstance(answer, dict):
            raise self.malformed("it is no JSON object")
        self._raise_error_in(answer)
        return answer

    async def _first_answer(self, post: Callable[[ModelHttpClient], Awaitable[Any]]) -> Any:
        """The answer of the first place that has the path; the first refusal if none has."""
        refusal: Misconfigured | None = None
        for place in list(self._places):
            try:
                answer = await post(place)
            except Misconfigured as exc:
                if exc.details.get("upstream_status") not in _NO_ROUTE:
                    raise
                refusal = refusal or exc
            else:
                self._keep(place)
                return answer
        raise refusal or RuntimeError("an endpoint has no address")

    def _keep(self, place: ModelHttpClient) -> None:
        if self._places[0] is not place:
            self._places.remove(place)
            self._places.insert(0, place)

    def _event(self, data: str) -> Any:
        if data.strip() == "[DONE]":
            return None
        try:
            event = orjson.loads(data)
        except orjson.JSONDecodeError as exc:
            raise self.malformed(f"an event is not JSON: {exc}") from exc
        if not isinstance(event, dict):
            raise self.malformed("an event is no JSON object")
        self._raise_error_in(event)
        return event

    def _raise_error_in(self, answer: Mapping[str, Any]) -> None:
        """Servers also report errors with status 200: in a stream, once it has begun, and proxies do always."""
        error = answer.get("error")
        if not error:
            return
        parts = error if isinstance(error, dict) else {"message": error}
        kind = str(parts.get("type") or parts.get("code") or "error")
        reason = self._key.redacted_text(str(parts.get("message") or "").encode())
        message = f"{self.name} failed in its answer ({kind}): {reason}"
        if "rate_limit" in kind or kind == "429":
            raise LimitReached(message)
        raise UpstreamOverload(message) if "overload" in kind else UpstreamError(message)

    def _too_long(self, max_bytes: int) -> LatentError:
        return MalformedAnswer(f"{self.name} sends more than {max_bytes} bytes")

    def _refused(self, status: int, answer_text: str) -> LatentError:
        """The error of a permanent refusal."""
        if status in _OF_THE_REQUEST and not _NOT_OF_THE_REQUEST.search(answer_text):
            refusal = InputRefused(
                f"{self.name} refuses this request ({status}): {answer_text}",
                upstream_status=status,
            )
            refusal.too_long = status == 413 or _TOO_LONG.search(answer_text) is not None
            return refusal
        return Misconfigured(
            f"{self.name} is misconfigured here: it refuses the request ({status}): {answer_text}; {self._remedy(status)}",
            upstream_status=status,
        )

    def _remedy(self, status: int) -> str:
        address, key = self.endpoint.setting, self.endpoint.key_setting
        if status in (401, 402, 403):
            return f"check {key}"
        if 300 <= status < 400:
            return f"redirects are not followed: set {address} to the final address"
        return f"check {address}, and that it serves the model '{self.endpoint.model}'"


def data_url(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{encoded(data)}"


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
