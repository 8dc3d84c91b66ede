"""Error answers, converted into the classes of ``latent_core.domain.errors``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import httpx

from latent_core.domain.errors import Invalid, LatentError, RateLimited, TimedOut, Unavailable

MAX_SHOWN_BODY: Final = 200


class GatewayUnreachable(Unavailable):
    """No gateway answers at the address."""


class ConnectionLost(Unavailable):
    """The connection broke before the answer was complete: the gateway may have received the call."""


def from_response(response: httpx.Response) -> LatentError:
    """The error of a 4xx or 5xx answer, with the server's message. Its body must be read already."""
    body = _json(response)
    issues = [i for i in body.get("issues") or [] if isinstance(i, dict)]
    first = issues[0] if issues else {}
    details: dict[str, Any] = dict(first.get("details") or {})
    if body.get("request_id"):
        details.setdefault("request_id", body["request_id"])
    if len(issues) > 1:
        details.setdefault("issues", issues)
    kind = error_class(response.status_code, first.get("code"))
    seconds = _retry_after(response)
    if kind is RateLimited:
        details.setdefault("retry_after", 1.0 if seconds is None else seconds)
    elif seconds is not None:
        details.setdefault("retry_after", seconds)
    return kind(str(first.get("message") or _unexplained(response)), **details)


def error_class(status: int, code: str | None) -> type[LatentError]:
    """The class with this status and code. Otherwise the first match by code, by status, or by 4xx and 5xx."""
    known = list(_classes(LatentError))
    for fits in (
        [c for c in known if c.status == status and c.code == code],
        [c for c in known if c.code == code],
        [c for c in known if c.status == status],
    ):
        if fits:
            return fits[0]
    return Unavailable if status >= 500 else Invalid


def from_failure(exc: httpx.HTTPError, url: str) -> LatentError:
    """The error of a request that got no answer."""
    if isinstance(exc, httpx.ConnectError | httpx.ConnectTimeout):
        remedy = "start it with `latent up` or set LLC_URL to its address"
        return GatewayUnreachable(f"no gateway answers at {url}; {remedy}", url=url)
    if isinstance(exc, httpx.TimeoutException):
        return TimedOut(f"{url} did not answer in time; try again or check its log", url=url)
    reason = str(exc) or type(exc).__name__
    return ConnectionLost(f"the connection to {url} was lost ({reason}); try again", url=url)


def _classes(root: type[LatentError]) -> Iterator[type[LatentError]]:
    """The core's classes below ``root``, parents before children."""
    for child in root.__subclasses__():
        if child.__module__ == LatentError.__module__:
            yield child
            yield from _classes(child)


def _json(response: httpx.Response) -> dict[str, Any]:
    try:
        body = response.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _unexplained(response: httpx.Response) -> str:
    shown = " ".join(response.text.split())[:MAX_SHOWN_BODY]
    return f"{response.request.url} answered {response.status_code}" + (
        f": {shown}" if shown else ""
    )


def _retry_after(response: httpx.Response) -> float | None:
    """``Retry-After`` in seconds; None if the header is absent or a date."""
    try:
        return max(float(response.headers["retry-after"]), 0.0)
    except (KeyError, ValueError):
        return None
