"""The meaning of a server's response: a page, not modified, a redirect, or an error; and its name, type and
encoding."""

from __future__ import annotations

import re
import ssl
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import PurePosixPath
from typing import Final

import httpx

from latent_core.domain.chunk import SourceType
from latent_core.domain.errors import IngestFailed, LatentError, RateLimited, Unavailable
from latent_core.domain.web_address import WebAddress
from latent_core.models.http.client import connection_trouble
from latent_workers.parse.signatures import EXTENSIONS, MIME_OF_EXTENSION, MIME_TYPES

LONGEST_WAIT: Final = 3600.0
"""Seconds. Longer waits that a server asks for are shortened to this."""

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_PAGES: Final = frozenset({200, 203})
_TRY_AGAIN: Final = frozenset({408, 425})
_REMEDIES: Final = {
    204: "there is no content",
    401: "it needs a login: save the page and upload the file",
    402: "it needs a payment: save the page and upload the file",
    403: "the server refuses programs, or needs a login: save the page and upload the file",
    404: "there is no such page: check the address",
    410: "the page was removed permanently",
    451: "it is blocked for legal reasons",
}
_MAX_CAUSES: Final = 10


def redirect(response: httpx.Response) -> str | None:
    """The target of a redirect; None if it is not one."""
    if response.status_code not in _REDIRECTS:
        return None
    location: str = response.headers.get("location", "").strip()
    return location or None


def unchanged(response: httpx.Response) -> bool:
    """Whether the server says that the page has not changed."""
    return response.status_code == 304


def check(response: httpx.Response, address: WebAddress) -> None:
    """Returns for a page; otherwise raises the error of its status."""
    status = response.status_code
    if status in _PAGES:
        return
    wait = retry_after(response)
    details = {"status": status} | ({"retry_after": wait} if wait else {})
    if status == 429:
        raise RateLimited(f"{address}: the server received too many requests (429)", **details)
    if status >= 500 or status in _TRY_AGAIN:
        raise Unavailable(f"{address}: the server answered {status}", **details)
    remedy = _REMEDIES.get(status, "open the address in a browser to see why")
    raise IngestFailed(f"{address}: the server answered {status}: {remedy}", **details)


def retry_after(response: httpx.Response) -> float | None:
    """Seconds to wait, bounded: ``Retry-After`` is a number or a date (RFC 9110 §10.2.3)."""
    value: str = response.headers.get("retry-after", "").strip()
    if value.isdecimal() and value.isascii():
        return min(float(value[:12]), LONGEST_WAIT)
    moment = moment_of(value)
    if moment is None:
        return None
    return min(max(0.0, (moment - datetime.now(UTC)).total_seconds()), LONGEST_WAIT)


def moment_of(value: str | None) -> datetime | None:
    """An HTTP date; None if it is not valid."""
    try:
        moment = parsedate_to_datetime(value or "")
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError, TypeError):
        return None


def no_connection(address: WebAddress, exc: httpx.HTTPError) -> LatentError:
    certificate = certificate_trouble(exc)
    if certificate is not None:
        return IngestFailed(
            f"{address.origin} has no valid certificate: {certificate.verify_message}",
            reason="certificate",
        )
    if isinstance(exc, httpx.ConnectTimeout):
        return Unavailable(f"{address.origin} did not accept a connection in time")
    return Unavailable(f"no connection to {address.origin}: {connection_trouble(exc)}")


def broken(address: WebAddress, exc: httpx.HTTPError) -> LatentError:
    """The error for a connection that breaks during the response."""
    if isinstance(exc, httpx.TimeoutException):
        return Unavailable(f"{address} stopped sending data during the fetch")
    if isinstance(exc, httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        return IngestFailed(f"{address} cannot be requested: {exc}")
    return Unavailable(f"{address} closed the connection during the fetch ({exc})")


def certificate_trouble(exc: BaseException) -> ssl.SSLCertVerificationError | None:
    """The certificate error, if that is why there is no connection."""
    cause: BaseException | None = exc
    for _ in range(_MAX_CAUSES):
        if cause is None or isinstance(cause, ssl.SSLCertVerificationError):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None


_SAYS_NOTHING: Final = frozenset(
    {
        "",
        "text/plain",
        "application/octet-stream",
        "binary/octet-stream",
        "application/x-download",
        "application/force-download",
        "unknown/unknown",
    }
)
"""Types that servers use for unknown files; then the name decides."""
_SUFFIXES: Final = {
    SourceType.WEB: ".html",
    SourceType.PDF: ".pdf",
    SourceType.MARKDOWN: ".md",
    SourceType.YAML: ".yaml",
    SourceType.JSON: ".json",
}
_SUFFIX_OF_MIME: Final = {mime: f".{suffix}" for suffix, mime in MIME_OF_EXTENSION.items()}
_HTML: Final = re.compile(
    rb"\A(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]{0,200}\?>\s*)?(?:<!--.{0,500}?-->\s*)?<(?:!doctype\s+html|html)\b",
    re.IGNORECASE | re.DOTALL,
)
HEAD_BYTES: Final = 1024
"""Bytes of a page that ``named`` reads."""


def plain_type(content_type: str) -> str:
    """The type without parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def named(filename: str, content_type: str, head: bytes) -> str:
    """``filename`` with the suffix of the type that the server declares, or that the first bytes show."""
    plain = plain_type(content_type)
    kind = _kind(filename, plain, head)
    suffix = _SUFFIX_OF_MIME.get(plain) or (_SUFFIXES.get(kind) if kind is not None else None)
    if suffix is None or _by_name(filename) is kind:
        return filename
    return filename + suffix


def _kind(filename: str, plain: str, head: bytes) -> SourceType | None:
    if plain not in _SAYS_NOTHING:
        return MIME_TYPES.get(plain)
    if plain != "text/plain" and _by_name(filename) is None and _HTML.match(head):
        return SourceType.WEB
    return None


def _by_name(filename: str) -> SourceType | None:
    return EXTENSIONS.get(PurePosixPath(filename.lower()).suffix.removeprefix("."))


PIECE: Final = 1024 * 1024
ACCEPTED: Final = "gzip, deflate"

_GZIP: Final = 16 + zlib.MAX_WBITS
_ZLIB: Final = zlib.MAX_WBITS
_RAW: Final = -zlib.MAX_WBITS
_MAGIC: Final = b"\x1f\x8b"
_NAMES: Final = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": _ZLIB}


def inflater_for(encoding: str) -> Inflater | None:
    """The decoder of a ``Content-Encoding``, None for none; ``IngestFailed`` for one that was not requested."""
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return None
    if name not in _NAMES:
        raise IngestFailed(f"the page came in the encoding '{name[:40]}', which was not requested")
    return Inflater(_NAMES[name])


class Inflater:
    """Decodes one compressed body. ``window_bits`` as in zlib."""

    def __init__(self, window_bits: int) -> None:
        self._bits = window_bits
        self._inner = zlib.decompressobj(window_bits)
        self._begun = False
        self._behind = b""
        """Bytes after the end of a gzip member, too few to see whether another one begins."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Pieces of at most ``PIECE`` bytes; nothing is decoded beyond what is consumed."""
        more = bool(data)
        while more:
            if self._inner.eof and not self._begins_again(data):
                return
            data, self._behind = self._behind + data, b""
            piece = self._inflate(data)
            if piece:
                yield piece
            ended = self._inner.eof
            data = self._inner.unused_data if ended else self._inner.unconsumed_tail
            # A full piece may have more behind it although all input is taken.
            more = bool(data) or (len(piece) == PIECE and not ended)

    def finish(self) -> None:
        """Raises ``Unavailable`` if the body is incomplete."""
        if self._begun and not self._inner.eof:
            raise Unavailable("the page is incomplete; the job will fetch it again")

    def _inflate(self, data: bytes) -> bytes:
        try:
            piece = self._inner.decompress(data, PIECE)
        except zlib.error as exc:
            if self._begun or self._bits != _ZLIB:
                raise IngestFailed(f"the page cannot be decoded: {exc}") from exc
            # Many servers mean a bare stream when they say deflate.
            self._inner, self._bits = zlib.decompressobj(_RAW), _RAW
            return self._inflate(data)
        self._begun = True
        return piece

    def _begins_again(self, data: bytes) -> bool:
        """Whether another gzip member begins; anything else after the end is padding."""
        start = (self._behind + data)[: len(_MAGIC)]
        if self._bits != _GZIP or not _MAGIC.startswith(start):
            self._bits = _RAW  # nothing can follow any more
            return False
        if len(start) < len(_MAGIC):
            self._behind = start
            return False
        self._inner = zlib.decompressobj(_GZIP)
        return True
