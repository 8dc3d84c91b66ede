"""Several addresses of one Qdrant cluster: requests go to one node until it does not answer, then to the next."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

import httpx
from typing_extensions import override

PORT: Final = 6333
"""Of an address without one, as ``qdrant-client`` has it."""
GIVEN_UP_SECONDS: Final = 0.25
"""A request that its caller cancels after this time counts against the node."""
_MAYBE_RUNNING: Final = (httpx.ReadTimeout, httpx.WriteTimeout)
_OURS: Final = (httpx.PoolTimeout, httpx.UnsupportedProtocol)


def addresses(urls: str) -> tuple[httpx.URL, ...]:
    """The addresses in ``LLC_QDRANT_URL``, separated by commas. ``ValueError`` for what is no address."""
    nodes = tuple(httpx.URL(part.strip()) for part in urls.split(",") if part.strip())
    for node in nodes:
        if node.scheme not in ("http", "https") or not node.host:
            raise ValueError(f"'{node}' is not an address such as http://qdrant:6333")
        if node.path != nodes[0].path:
            raise ValueError("all addresses must have the same path")
    if not nodes:
        raise ValueError("it names no address")
    return nodes


class NodesTransport(httpx.AsyncBaseTransport):
    """Repeating a request on another node is safe: points are written by id, and a collection that exists is a
    conflict that callers expect."""

    def __init__(self, nodes: Sequence[httpx.URL], inner: httpx.AsyncBaseTransport) -> None:
        self._nodes = nodes
        self._inner = inner
        self._current = 0

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        for tried in range(1, len(self._nodes) + 1):
            node, begun = self._current, time.monotonic()
            try:
                return await self._inner.handle_async_request(_at(request, self._nodes[node]))
            except _OURS:
                raise
            except httpx.TransportError as error:
                self._leave(node)
                if tried == len(self._nodes) or isinstance(error, _MAYBE_RUNNING):
                    raise  # after a timeout no time is left for another node
            except asyncio.CancelledError:
                if time.monotonic() - begun >= GIVEN_UP_SECONDS:
                    self._leave(node)
                raise
        raise RuntimeError("there is no address")

    @override
    async def aclose(self) -> None:
        await self._inner.aclose()

    def _leave(self, node: int) -> None:
        if self._current == node:  # otherwise another request has left it already
            self._current = (node + 1) % len(self._nodes)


def _at(request: httpx.Request, node: httpx.URL) -> httpx.Request:
    """``request``, addressed to ``node``. Its body is bytes, so it can be sent again."""
    url = request.url.copy_with(scheme=node.scheme, host=node.host, port=node.port or PORT)
    headers = request.headers.copy()
    headers["Host"] = url.netloc.decode("ascii")
    return httpx.Request(
        request.method, url, headers=headers, stream=request.stream, extensions=request.extensions
    )
