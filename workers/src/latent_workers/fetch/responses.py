"""What a server's answer means: a page, nothing new, a way on, or a reason why not."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

import httpx

from latent_core.domain.errors import IngestFailed, LatentError, RateLimited, Unavailable
from latent_core.domain.web_address import WebAddress

LONGEST_WAIT: Final = 3600.0
"""Seconds; a server that asks for more is asked again after this."""

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_PAGES: Final = frozenset({200, 203})
_TRY_AGAIN: Final = frozenset({408, 425})
_REMEDIES: Final = {
    204: "there is no content",
    401: "it wants a login; save the page and upload the file",
    402: "it wants to be paid; save the page and upload the file",
    403: "the server does not give it to programs, or wants a login; save the page and upload the file",
    404: "there is no such page; check the address",
    410: "the page is gone for good",
    451: "it is withheld for legal reasons",
}
_MAX_CAUSES: Final = 10


def redirect(response: httpx.Response) -> str | None:
    """Where the answer sends us, None when it does not."""
    if response.status_code not in _REDIRECTS:
        return None
    location: str = response.headers.get("location", "").strip()
    return location or None


def unchanged(response: httpx.Response) -> bool:
    """Whether the server, asked so, says that it has nothing new."""
    return response.status_code == 304


def check(response: httpx.Response, address: WebAddress) -> None:
    """Nothing for a page; otherwise raises what its status means."""
    status = response.status_code
    if status in _PAGES:
        return
    wait = retry_after(response)
    details = {"status": status} | ({"retry_after": wait} if wait else {})
    if status == 429:
        raise RateLimited(f"{address}: the server wants fewer requests (429)", **details)
    if status >= 500 or status in _TRY_AGAIN:
        raise Unavailable(f"{address}: the server answered {status}; it is tried again", **details)
    remedy = _REMEDIES.get(status, "open the address in a browser to see why")
    raise IngestFailed(f"{address}: the server answered {status}: {remedy}", **details)


def retry_after(response: httpx.Response) -> float | None:
    """Seconds the server asks to wait, within reason: a number or a date (RFC 9110 §10.2.3)."""
    value: str = response.headers.get("retry-after", "").strip()
    if value.isdecimal() and value.isascii():
        return min(float(value[:12]), LONGEST_WAIT)
    moment = moment_of(value)
    if moment is None:
        return None
    return min(max(0.0, (moment - datetime.now(UTC)).total_seconds()), LONGEST_WAIT)


def moment_of(value: str | None) -> datetime | None:
    """An HTTP date, None for what is none."""
    try:
        moment = parsedate_to_datetime(value or "")
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError, TypeError):
        return None


def no_connection(address: WebAddress, exc: httpx.HTTPError) -> LatentError:
    certificate = certificate_trouble(exc)
    if certificate is not None:
        return IngestFailed(
            f"{address.origin} could not prove who it is: {certificate.verify_message}",
            reason="certificate",
        )
    return Unavailable(f"no connection to {address.origin}; it is tried again")


def broken(address: WebAddress, exc: httpx.HTTPError) -> LatentError:
    """While the answer came."""
    if isinstance(exc, httpx.TimeoutException):
        return Unavailable(f"{address} fell silent while it was fetched; it is tried again")
    if isinstance(exc, httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        return IngestFailed(f"{address} cannot be asked for: {exc}")
    return Unavailable(f"{address} broke off while it was fetched ({exc}); it is tried again")


def certificate_trouble(exc: BaseException) -> ssl.SSLCertVerificationError | None:
    """What was wrong with the certificate, if that is why there is no connection."""
    cause: BaseException | None = exc
    for _ in range(_MAX_CAUSES):
        if cause is None or isinstance(cause, ssl.SSLCertVerificationError):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None
