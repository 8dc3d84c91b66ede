"""The marker of an installation on a Qdrant server: a collection of one point, whose payload names the holder."""

from __future__ import annotations

import time
from typing import Final
from uuid import UUID

from qdrant_client import AsyncQdrantClient, models
from qdrant_client.http.exceptions import UnexpectedResponse

from latent_core.domain.installation import Installation, MarkerPolicy
from latent_core.vectors.qdrant.errors import is_not_found

MARKER: Final = "installation"
"""The collection's name below the prefix; collections of vectors start with ``c_``."""
_POINT: Final = str(UUID(int=0))
_FIELD: Final = "marker"
_REPLICAS: Final = 3
"""Every write needs the marker, so in a cluster it outlives a node. A server of one node makes one replica of them."""


class QdrantMarker:
    """Raises the errors of ``qdrant-client``; its caller maps them."""

    def __init__(self, client: AsyncQdrantClient, name: str, installation: Installation) -> None:
        self._client = client
        self._name = name
        self._installation = installation
        self._verified_at = float("-inf")

    async def settle(self, policy: MarkerPolicy) -> None:
        """Write the marker if ``policy`` says so, then check it."""
        found = await self._read()
        if policy is MarkerPolicy.TAKE_OVER or (found is None and policy is MarkerPolicy.CREATE):
            await self._write()
        await self.verify()

    async def verify(self, max_age_seconds: float = 0.0) -> None:
        """``MarkerMismatch`` unless the marker names this holder, read at most ``max_age_seconds`` ago."""
        if time.monotonic() - self._verified_at < max_age_seconds:
            return
        self._installation.check(await self._read(), "the Qdrant server (LLC_QDRANT_URL)")
        self._verified_at = time.monotonic()

    async def _read(self) -> bytes | None:
        try:
            records = await self._client.retrieve(self._name, [_POINT], with_payload=[_FIELD])
        except UnexpectedResponse as exc:
            if is_not_found(exc):  # and not a proxy that answers 404 while the server is away
                return None
            raise
        return str((records[0].payload or {}).get(_FIELD)).encode() if records else None

    async def _write(self) -> None:
        size = models.VectorParams(size=1, distance=models.Distance.COSINE)
        try:
            await self._client.create_collection(
                self._name, vectors_config=size, shard_number=1, replication_factor=_REPLICAS
            )
        except UnexpectedResponse as exc:
            if (
                exc.status_code != 409
            ):  # it exists: another process creates it, or was killed before its point
                raise
        payload = {_FIELD: self._installation.marker().decode()}
        point = models.PointStruct(id=_POINT, vector=[1.0], payload=payload)
        await self._client.upsert(self._name, [point], wait=True)
