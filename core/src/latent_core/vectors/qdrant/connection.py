"""The connection to a Qdrant server or cluster: address, deadline, errors, and whose collections they are."""

from __future__ import annotations

import asyncio
import logging
import math
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import httpx
from pydantic import SecretStr
from qdrant_client import AsyncQdrantClient

from latent_core.domain.errors import (
    Invalid,
    StoreFull,
    TimedOut,
    UpstreamError,
    UpstreamOverload,
)
from latent_core.domain.installation import Installation, MarkerPolicy
from latent_core.domain.service_health import ServiceHealth
from latent_core.vectors.qdrant.errors import NotConnected, mapped_errors
from latent_core.vectors.qdrant.marker import MARKER, QdrantMarker
from latent_core.vectors.qdrant.nodes import NodesTransport, addresses
from latent_core.vectors.qdrant.tenants import server_collection

logger = logging.getLogger(__name__)

MIN_VERSION: Final = (1, 16)


@dataclass(frozen=True, slots=True)
class QdrantAddress:
    """``url``: the addresses of the server's nodes, separated by commas; and the ``prefix`` of our collections'
    names."""

    url: str
    api_key: SecretStr | None = None
    prefix: str = ""


class QdrantConnection:
    """Every request goes through ``call``. The first one settles whose collections these are."""

    def __init__(
        self,
        client: AsyncQdrantClient,
        installation: Installation,
        policy: MarkerPolicy,
        *,
        prefix: str,
        deadline_seconds: float,
    ) -> None:
        self.client = client
        self.prefix = f"{prefix}{installation.id}_"
        self.marker = QdrantMarker(client, f"{self.prefix}{MARKER}", installation)
        self.deadline_seconds = deadline_seconds
        self.on_failure: Callable[[str], None] = lambda _: None
        """Called with the collection of a failed request: what is cached of it may be wrong."""
        self._policy = policy
        self._settled = False
        self._health = ServiceHealth("qdrant")

    async def open(self) -> None:
        """``Invalid`` when the server is unsuitable, ``MarkerMismatch`` when its collections belong to another holder,
        ``ServiceUnreachable`` when it refuses the key. A server that is down or full is checked before the first
        call that it answers instead, except by ``latent adopt``, which needs it now."""
        try:
            await self._settle_identity()
        except (NotConnected, TimedOut, UpstreamError, UpstreamOverload, StoreFull) as exc:
            if self._policy is MarkerPolicy.TAKE_OVER:
                raise
            logger.warning("qdrant_not_checked", extra={"cause": exc.message})

    def named(self, collection: str) -> str:
        """The collection on the server."""
        return self.prefix + server_collection(collection)

    @property
    def seconds(self) -> int:
        """The server's timeout, no later than ours."""
        return max(1, math.floor(self.deadline_seconds))

    @asynccontextmanager
    async def call(self, collection: str) -> AsyncIterator[None]:
        """For one request on ``collection``: its deadline and its errors."""
        if not self._settled:
            await self._settle_identity()
        async with self._request(collection):
            yield

    async def verify(self, max_age_seconds: float = 0.0) -> None:
        """``MarkerMismatch`` if another database now holds this installation."""
        async with self.call(""):
            await self.marker.verify(max_age_seconds)

    async def close(self) -> None:
        await self.client.close()

    async def _settle_identity(self) -> None:
        """Check the server's version, and create or check the marker. Repeating it is harmless."""
        async with self._request(""):
            server_info = await self.client.info()
        _check_version(server_info.version)
        async with self._request(""):
            await self.marker.settle(self._policy)
        self._settled = True

    @asynccontextmanager
    async def _request(self, collection: str) -> AsyncIterator[None]:
        with mapped_errors(collection, self.deadline_seconds, self._health):
            try:
                async with asyncio.timeout(self.deadline_seconds):
                    yield
            except BaseException:
                self.on_failure(collection)
                raise


def connect(address: QdrantAddress, deadline_seconds: float) -> AsyncQdrantClient:
    # Set explicitly, or connections to this machine would not be kept.
    limits = httpx.Limits(max_connections=64, max_keepalive_connections=32)
    with warnings.catch_warnings():
        # A key without TLS is normal in an internal network of containers.
        warnings.filterwarnings("ignore", message=".*insecure connection", category=UserWarning)
        try:
            nodes = addresses(address.url)
            return AsyncQdrantClient(
                url=str(nodes[0]),
                api_key=address.api_key.get_secret_value() if address.api_key else None,
                timeout=math.ceil(deadline_seconds),
                check_compatibility=False,  # it would print from another thread
                # A compressed response comes in pieces, and the second one waits for a delayed
                # acknowledgement: 48 ms per request instead of 5 (measured on Qdrant 1.18.3).
                headers={"Accept-Encoding": "identity"},
                transport=NodesTransport(
                    nodes, httpx.AsyncHTTPTransport(limits=limits, trust_env=False)
                ),
                trust_env=False,
            )
        except (ValueError, TypeError, httpx.InvalidURL) as exc:
            raise Invalid(f"LLC_QDRANT_URL cannot be read: {exc}") from exc


def _check_version(found: str) -> None:
    if tuple(int(part) for part in found.split(".")[:2]) < MIN_VERSION:
        raise Invalid(
            f"Qdrant {found} at LLC_QDRANT_URL is too old: {'.'.join(map(str, MIN_VERSION))} or newer is needed"
        )
