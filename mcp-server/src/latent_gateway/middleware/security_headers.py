"""What every answer tells a browser: it is what it says it is, no page may frame it, it loads and runs nothing.

A route that needs more (the console's pages, a page image) says so itself, and is left alone.
"""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

DEFAULTS: Final = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"referrer-policy": b"no-referrer",
}


class ResponseHeaders:
    """ASGI middleware: adds what the answer does not say already."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def adding(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = list(message.get("headers", ()))
                names = {name.lower() for name, _ in given}
                missing = [pair for pair in DEFAULTS.items() if pair[0] not in names]
                message["headers"] = [*given, *missing]
            await send(message)

        await self._app(scope, receive, adding if scope["type"] == "http" else send)
