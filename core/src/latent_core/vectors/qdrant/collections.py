"""Collections on a Qdrant server: how they are created, changed, listed, and what limits they have."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Final

from qdrant_client import models

from latent_core.domain.errors import Conflict, Invalid, NotFound
from latent_core.domain.ids import SHARED, WITHIN
from latent_core.domain.installation import WRITE_CHECK_SECONDS
from latent_core.vectors.port import CollectionLayout
from latent_core.vectors.qdrant.collection_info import (
    CollectionInfo,
    StrictModeLimits,
    capped,
    read_collection,
)
from latent_core.vectors.qdrant.connection import QdrantConnection
from latent_core.vectors.qdrant.errors import NotReadable
from latent_core.vectors.qdrant.marker import MARKER
from latent_core.vectors.qdrant.points import completed
from latent_core.vectors.qdrant.tenants import (
    COLLECTION_FIELD,
    MAX_TENANTS,
    TENANT_FIELDS,
    server_collection,
    tenant_of,
)

HNSW_LINKS: Final = 32
HNSW_BUILD: Final = 256
QUANTIZE_FROM_POINTS: Final = 300_000
CREATION_PAUSE_SECONDS: Final = 0.1
INDEXED: Final[dict[str, models.PayloadFieldSchema]] = {
    "doc_id": models.PayloadSchemaType.UUID,
    "generation": models.PayloadSchemaType.INTEGER,
}
INT8: Final = models.ScalarQuantization(
    scalar=models.ScalarQuantizationConfig(type=models.ScalarType.INT8, always_ram=True)
)


class QdrantCollections:
    """Creates collections as designed, keeps them so, and knows their dimensions and limits."""

    def __init__(self, connection: QdrantConnection) -> None:
        self._connection = connection
        self._client = connection.client
        self._dims: dict[str, int] = {}
        self._limits: dict[str, StrictModeLimits] = {}
        connection.on_failure = self.forget

    async def create(
        self, name: str, dims: int, layout: CollectionLayout = CollectionLayout()
    ) -> None:
        if dims < 1:
            raise Invalid(f"a collection of {dims} dimensions cannot be created")
        if tenant_of(name) is not None and self._dims.get(server_collection(name)) == dims:
            return  # hundreds of containers may share one that was checked before
        await self._connection.verify(WRITE_CHECK_SECONDS)
        # Read first: a server that is full, or in strict mode, refuses to create even what exists.
        try:
            info = await self._created(name)
        except NotFound:
            with suppress(Conflict):  # another process creates it
                await self._create(name, dims, layout)
            info = await self._created(name)
        found = self._note(name, info)
        if found != dims:
            raise Conflict(
                f"vector collection {name} exists with {found} dimensions, not {dims}",
                collection=name,
            )
        await self._index_fields(name, set(info.indexes))
        if tenant_of(name) is None:
            await self._settle(name, layout, info)

    async def drop(self, name: str) -> None:
        """``name`` is no shared collection. ``NotFound`` if it does not exist."""
        self.forget(name)
        async with self._connection.call(name):
            await self._client.delete_collection(
                self._connection.named(name), timeout=self._connection.seconds
            )

    async def names(self) -> list[str]:
        async with self._connection.call(""):
            answer = await self._client.get_collections()
        names = (one.name for one in answer.collections)
        ours = [
            n.removeprefix(self._connection.prefix)
            for n in names
            if n.startswith(self._connection.prefix)
        ]
        shared = [n for n in ours if n.startswith(SHARED)]
        found = [n for n in ours if n != MARKER and n not in shared]
        for name in shared:
            found += [f"{name}{WITHIN}{tenant}" for tenant in await self._tenants(name)]
        return found

    def forget(self, name: str) -> None:
        """Drop what is cached of a collection: it may be gone or changed."""
        self._dims.pop(server_collection(name), None)
        self._limits.pop(server_collection(name), None)

    def within(self, name: str) -> int:
        """The server's timeout in seconds, limited by strict mode."""
        known, seconds = self._limits.get(server_collection(name)), self._connection.seconds
        return seconds if known is None else capped(seconds, known.timeout)

    async def _create(self, name: str, dims: int, layout: CollectionLayout) -> None:
        async with self._connection.call(name):
            await self._client.create_collection(
                self._connection.named(name),
                vectors_config=models.VectorParams(size=dims, distance=models.Distance.COSINE),
                shard_number=layout.shards,
                replication_factor=layout.replicas,
                write_consistency_factor=_acknowledgements(layout.replicas),
                on_disk_payload=True,
                hnsw_config=_hnsw(name),
                quantization_config=INT8 if layout.quantization == "int8" else None,
                timeout=self._connection.seconds,
            )

    async def _index_fields(self, name: str, indexed: set[str]) -> None:
        """Also of an existing collection: its creator may have been killed before."""
        needed = INDEXED if tenant_of(name) is None else INDEXED | TENANT_FIELDS
        for field in sorted(set(needed) - indexed):
            async with self._connection.call(name):
                completed(
                    await self._client.create_payload_index(
                        self._connection.named(name), field, needed[field], wait=True
                    ),
                    name,
                )

    async def _tenants(self, name: str) -> list[str]:
        """The collections with points in a shared one."""
        limits = await self.limits(name)
        limit = capped(MAX_TENANTS, limits.query)
        found: dict[str, int] = {}
        while True:
            seen = models.MatchAny(any=list(found))
            others = models.FieldCondition(key=COLLECTION_FIELD, match=seen)
            async with self._connection.call(name):
                answer = await self._client.facet(
                    self._connection.named(name),
                    COLLECTION_FIELD,
                    facet_filter=models.Filter(must_not=[others]) if found else None,
                    limit=limit,
                    exact=limits.exact,
                    timeout=self.within(name),
                )
            found |= {str(hit.value): hit.count for hit in answer.hits}
            if len(answer.hits) < limit:
                # Exact facets also list values whose points are all deleted.
                return sorted(tenant for tenant, points in found.items() if points)

    async def _settle(self, name: str, layout: CollectionLayout, info: CollectionInfo) -> None:
        """Change an existing collection where it differs from the manifest, or has outgrown its quantization."""
        needed = _acknowledgements(info.replicas)
        if info.acknowledgements != needed:
            params = models.CollectionParamsDiff(write_consistency_factor=needed)
            async with self._connection.call(name):
                await self._client.update_collection(
                    self._connection.named(name),
                    collection_params=params,
                    timeout=self._connection.seconds,
                )
        quantized = info.quantization is not None
        large = (info.points or 0) > QUANTIZE_FROM_POINTS
        page_size = large if layout.quantization is None else layout.quantization == "int8"
        if page_size == quantized or (quantized and layout.quantization is None):
            return
        async with self._connection.call(name):
            await self._client.update_collection(
                self._connection.named(name),
                quantization_config=INT8 if page_size else models.Disabled.DISABLED,
                timeout=self._connection.seconds,
            )

    async def _info(self, name: str) -> CollectionInfo:
        async with self._connection.call(name):
            return await read_collection(self._client, self._connection.named(name))

    async def _created(self, name: str) -> CollectionInfo:
        """``_info`` once all that creates the collection is done: another process may be at it."""
        until = time.monotonic() + self._connection.deadline_seconds
        while True:
            try:
                return await self._info(name)
            except NotReadable:
                if time.monotonic() >= until:
                    raise
                await asyncio.sleep(CREATION_PAUSE_SECONDS)

    async def stored_dims(self, name: str) -> int:
        """The current value on the server; ``NotFound`` without the collection."""
        return self._note(name, await self._info(name))

    def _note(self, name: str, info: CollectionInfo) -> int:
        """Cache what ``info`` says; returns the dimensions."""
        if info.dims is None:
            raise Conflict(
                f"vector collection {name} was not created by this program: it has no vector size"
            )
        self._dims[server_collection(name)] = info.dims
        self._limits[server_collection(name)] = StrictModeLimits.of(info.strict_mode)
        return info.dims

    async def limits(self, name: str) -> StrictModeLimits:
        """The server's limits, cached."""
        key = server_collection(name)
        if key not in self._limits:
            await self.stored_dims(name)
        return self._limits[key]

    async def check_dims(self, name: str, given: int) -> None:
        key = server_collection(name)
        if self._dims.get(key) != given and await self.stored_dims(name) != given:
            raise Invalid(
                f"vector collection {name} has {self._dims[key]} dimensions, not {given}",
                collection=name,
            )


def _acknowledgements(replicas: int) -> int:
    """The replicas that must have a write before the server answers. Vectors can be derived again, so that one of two
    suffices, and writes go on when a node is dead; from three on it is the majority."""
    return 1 if replicas <= 2 else replicas // 2 + 1


def _hnsw(name: str) -> models.HnswConfigDiff:
    """A shared collection is never searched as a whole: it has a graph per tenant, and none over all points."""
    if tenant_of(name) is None:
        return models.HnswConfigDiff(m=HNSW_LINKS, ef_construct=HNSW_BUILD)
    return models.HnswConfigDiff(m=0, payload_m=HNSW_LINKS, ef_construct=HNSW_BUILD)
