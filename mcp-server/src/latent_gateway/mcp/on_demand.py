"""The MCP server without its modules until it is called: they are a fifth of a gateway's start and of its idle memory,
and many installations have no agent yet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter, FastAPI, Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send
from typing_extensions import override

from latent_core.domain.errors import NotFound, Unavailable
from latent_core.runtime.imports import quick_imports
from latent_core.wire.doctor import ToolList
from latent_gateway.auth.principal import Principal
from latent_gateway.context import Caller, Gateway, RequestId, Shared
from latent_gateway.envelope import error_answer, json_answer
from latent_gateway.mcp.guard import CONNECTOR_PATH, PATH

if TYPE_CHECKING:
    from latent_gateway.mcp.server import Surface

LOAD_SECONDS: Final = 60.0
"""Until the server is ready for its first request; about a second on an idle machine."""

MakeSurface = Callable[[Gateway], "Surface"]

router = APIRouter(tags=["mcp"])


@router.get("/mcp/tools", response_model=ToolList)
async def tools(shared: Shared, caller: Caller, request_id: RequestId) -> Response:
    """The tools that this token may call."""
    return json_answer(await asyncio.to_thread(_listed, shared, caller), request_id)


@router.api_route("/mcp/", methods=["GET", "POST", "DELETE"], include_in_schema=False)
@router.api_route("/mcp/connector/", methods=["GET", "POST", "DELETE"], include_in_schema=False)
async def with_a_slash() -> Response:
    """No redirect: behind a proxy it would lead to an address that only the proxy knows."""
    raise NotFound("the MCP addresses are /mcp and /mcp/connector, without a slash at the end")


def _listed(shared: Gateway, caller: Principal) -> ToolList:
    from latent_gateway.mcp.tools.registry import listed

    return listed(shared.settings, caller)


def surface_of(shared: Gateway) -> Surface:
    """The MCP server of a gateway; the first call imports it."""
    from latent_gateway.mcp.server import Surface

    return Surface(shared)


class SurfaceOnDemand:
    """Routes at ``/mcp`` and ``/mcp/connector`` to a server that the first request makes."""

    def __init__(self, shared: Gateway, make: MakeSurface = surface_of) -> None:
        self._shared = shared
        self._make = make
        self._requested, self._closing = asyncio.Event(), asyncio.Event()
        self._surface: asyncio.Future[Surface] | None = None

    def install(self, app: FastAPI) -> None:
        """Routes, not mounts: a mount would redirect ``/mcp`` and shadow ``/mcp/tools``.

        Only POST: a GET would open a stream without any events.
        """
        for path in (PATH, CONNECTOR_PATH):
            app.router.routes.append(_Route(path, _Endpoint(self, path), methods=["POST"]))

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Runs once. The server runs in one task, since its task groups must end where they began."""
        self._surface = asyncio.get_running_loop().create_future()
        running = asyncio.create_task(self._run(app, self._surface), name="mcp")
        try:
            yield
        finally:
            self._closing.set()
            self._requested.set()
            await asyncio.gather(running, return_exceptions=True)  # requests have got the error

    async def endpoint(self, path: str) -> ASGIApp:
        """``Unavailable`` if the server is not ready in time."""
        if self._surface is None or self._closing.is_set():
            raise Unavailable("the MCP server runs only while the gateway does")
        self._requested.set()
        try:
            async with asyncio.timeout(LOAD_SECONDS):
                surface = await asyncio.shield(self._surface)
        except TimeoutError as exc:
            raise Unavailable(
                f"the MCP server was not ready within {LOAD_SECONDS:g} s: try again"
            ) from exc
        return surface.endpoints[path]

    async def _run(self, app: FastAPI, ready: asyncio.Future[Surface]) -> None:
        await self._requested.wait()
        if self._closing.is_set():
            ready.cancel()
            return
        try:
            surface = await asyncio.to_thread(self._made)
        except BaseException as exc:
            ready.set_exception(exc)
            raise
        async with surface.lifespan(app):
            ready.set_result(surface)
            await self._closing.wait()

    def _made(self) -> Surface:
        with quick_imports():
            return self._make(self._shared)


class _Endpoint:
    """An ASGI app, not a function: a function would be called with a request."""

    def __init__(self, surface: SurfaceOnDemand, path: str) -> None:
        self._surface = surface
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            endpoint: Any = await self._surface.endpoint(self._path)
        except Unavailable as error:
            endpoint = error_answer(error, scope["latent.request_id"])
        await endpoint(scope, receive, send)


class _Route(Route):
    """A route that metrics know by its path, as they know the framework's routes."""

    @override
    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        return match, {**child, "route": self}
