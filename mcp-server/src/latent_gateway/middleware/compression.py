"""gzip, for those who ask for it: of JSON and text over a kilobyte, made in one piece.

Streams and blobs pass untouched: events must not wait in a compressor, and most blobs are compressed already.
Fast rather than small: of ten hits (33 kB) the first level leaves 35 % in 0.5 ms, the ninth 32 % in 1.4 ms.
"""

from __future__ import annotations

from typing import Final

from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

LEVEL: Final = 1
MIN_BYTES: Final = 1024
UNTOUCHED: Final = (
    *DEFAULT_EXCLUDED_CONTENT_TYPES,
    "application/octet-stream",
    "application/pdf",
    "application/x-tar",
)
BLOBS: Final = "/v1/blobs/"


class CompressionMiddleware:
    """ASGI middleware. Who does not ask pays for one look at the headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._compressing = GZipMiddleware(
            app, minimum_size=MIN_BYTES, compresslevel=LEVEL, exclude_content_types=UNTOUCHED
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        plain = scope["type"] != "http" or scope["path"].startswith(BLOBS) or not _asks(scope)
        await (self._app if plain else self._compressing)(scope, receive, send)


def _asks(scope: Scope) -> bool:
    return any(
        name == b"accept-encoding" and b"gzip" in value.lower() for name, value in scope["headers"]
    )
