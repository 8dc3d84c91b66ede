"""Access to ``/mcp``: the Host and Origin of a request are checked first.

An attacker's web page can let its own name resolve to this machine; the browser then sends its requests here. But
the page cannot send another host name than its own (DNS rebinding).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import urlsplit

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from latent_core.domain.agent_clients import MCP_PATH
from latent_core.domain.errors import Forbidden
from latent_core.settings import Settings
from latent_gateway.envelope import error_answer

PATH: Final = MCP_PATH
CONNECTOR_PATH: Final = f"{PATH}/connector"
LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
EVERYWHERE: Final = frozenset({"0.0.0.0", "::", ""})
HOST: Final = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")
ORIGIN: Final = re.compile(r"https?://(?P<host>[^/]+)")
SHOWN: Final = 100
NAMES: Final = re.compile(r"[A-Za-z0-9-]+(?:, ?[A-Za-z0-9-]+){0,50}")
ALLOWED: Final = "Authorization, Content-Type, MCP-Protocol-Version, Mcp-Session-Id, Mcp-Method, Mcp-Name, Last-Event-ID"
"""Headers of a request that pages may set, if the browser names none."""
EXPOSED: Final = "Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After, X-Request-Id"
"""Headers of an answer that pages may read."""


class UnknownHost(Forbidden):
    """The request names an unknown host."""

    status = 421


@dataclass(frozen=True, slots=True)
class GatewayNames:
    """The host names of this gateway, in lower case."""

    hosts: frozenset[str]
    """``name`` with any port, or ``name:port``."""
    origins: frozenset[str]
    """Of other web pages that may call it."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        own = {*LOOPBACK, *_named(settings.public_url), *_named(settings.url)}
        if settings.bind not in EVERYWHERE:
            own.add(f"[{settings.bind}]" if ":" in settings.bind else settings.bind)
        hosts = _small([*own, *settings.mcp_allowed_hosts])
        return cls(hosts, _small(settings.mcp_allowed_origins))

    def check(self, hosts: list[str], origins: list[str]) -> None:
        """``UnknownHost`` or ``Forbidden`` unless the host is known and the origin is allowed."""
        host = hosts[0].lower() if len(hosts) == 1 else ""
        if not self._knows(host):
            raise UnknownHost(
                f"this gateway does not accept the host name '{_shown(host)}': to allow it, add it to LLC_MCP_ALLOWED_HOSTS"
            )
        if origins and not (len(origins) == 1 and self._admits(origins[0].lower(), host)):
            raise Forbidden(
                f"web pages from '{_shown(', '.join(origins))}' may not call this gateway: "
                "to allow them, add the origin to LLC_MCP_ALLOWED_ORIGINS"
            )

    def _knows(self, host: str) -> bool:
        parts = HOST.fullmatch(host)
        return parts is not None and (parts["name"] in self.hosts or host in self.hosts)

    def _admits(self, origin: str, host: str) -> bool:
        parts = ORIGIN.fullmatch(origin)
        return parts is not None and (parts["host"] == host or origin in self.origins)


class McpGuard:
    """ASGI middleware around ``/mcp`` and what is below it: checks names, and lets pages of allowed origins call (CORS)."""

    def __init__(self, app: ASGIApp, names: GatewayNames) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and guarded(scope["path"]):
            try:
                self._names.check(_values(scope, b"host"), _values(scope, b"origin"))
            except Forbidden as error:
                answer = error_answer(error, scope["latent.request_id"])
                answer.headers["Connection"] = (
                    "close"  # the unread body must not be parsed as the next request
                )
                await answer(scope, receive, send)
                return
            origin = _values(scope, b"origin")
            if origin and scope["method"] == "OPTIONS":
                await _preflight(scope)(scope, receive, send)
                return
            if origin:
                send = _with_cors(send, origin[0])
            # White space around a value is not part of it (RFC 9110 5.5), but the SDK compares raw values.
            scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        await self._app(scope, receive, send)


def _preflight(scope: Scope) -> Response:
    """The answer to a browser that asks before a page's request. The origin is allowed."""
    requested = ", ".join(_values(scope, b"access-control-request-headers"))
    headers = {
        **_cors(_values(scope, b"origin")[0]),
        "Access-Control-Allow-Methods": "GET, POST",
        "Access-Control-Allow-Headers": requested if NAMES.fullmatch(requested) else ALLOWED,
        "Access-Control-Max-Age": "7200",
    }
    if _values(scope, b"access-control-request-private-network"):
        headers["Access-Control-Allow-Private-Network"] = "true"
    return Response(status_code=204, headers=headers)


def _with_cors(send: Send, origin: str) -> Send:
    """The page may read every answer, errors included."""
    headers = {**_cors(origin), "Access-Control-Expose-Headers": EXPOSED}
    added = [(name.lower().encode(), value.encode()) for name, value in headers.items()]

    async def adding(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *added]
        await send(message)

    return adding


def _cors(origin: str) -> dict[str, str]:
    return {"Access-Control-Allow-Origin": origin.strip(), "Vary": "Origin"}


def guarded(path: str) -> bool:
    return path == PATH or path.startswith(f"{PATH}/")


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def _named(url: str | None) -> list[str]:
    """The host of an address, in brackets if necessary."""
    host = urlsplit(url).hostname if url else None
    if not host:
        return []
    return [f"[{host}]" if ":" in host else host]


def _small(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.strip().lower() for name in names)


def _shown(text: str) -> str:
    return text[:SHOWN].encode("ascii", "replace").decode()
