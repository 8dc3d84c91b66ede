"""Counts each request to the HTTP API for its token. Calls at ``/mcp`` are counted by tool, pages of the console by
their session."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from latent_gateway.auth.principal import Principal

FIRST_FAILURE: Final = 400
"""Of the status codes."""
Count = Callable[[Principal, str, bool], None]
"""Called with the principal, method and route, and whether the request failed."""


class CallCountMiddleware:
    """ASGI middleware inside ``AuthMiddleware``, which has stored the principal. ``skipped`` are paths."""

    def __init__(self, app: ASGIApp, count: Count, skipped: Collection[str]) -> None:
        self._app = app
        self._count = count
        self._skipped = skipped

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller: Principal | None = scope.get("latent.principal")
        if caller is None or scope["path"] in self._skipped:
            await self._app(scope, receive, send)
            return
        status = 500

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            route = getattr(scope.get("route"), "path", None)
            if route is not None:
                operation = f"{scope['method']} {route}"
                self._count(caller, operation, status >= FIRST_FAILURE)
