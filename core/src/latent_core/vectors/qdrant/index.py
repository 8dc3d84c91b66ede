"""The vector engine as a server: Qdrant 1.16 or newer, by REST.

The server is never authoritative: a write counts only when its status is ``completed`` and every point exists by id,
and search hits are joined with Postgres. Searches use HNSW: above Qdrant's ``full_scan_threshold`` they find the
nearest points with high recall, not with certainty.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final, Self
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from qdrant_client import models

from latent_core.domain.errors import Invalid, Misconfigured, NotFound, Unavailable
from latent_core.domain.ids import PointId
from latent_core.domain.installation import WRITE_CHECK_SECONDS, Installation, MarkerPolicy
from latent_core.domain.vector_types import Vector
from latent_core.vectors.edge.write_coalescer import WriteCoalescer
from latent_core.vectors.port import (
    CollectionLayout,
    Points,
    StoredPoint,
    VectorHits,
    checked_points,
    checked_query,
)
from latent_core.vectors.qdrant.collection_info import capped
from latent_core.vectors.qdrant.collections import QdrantCollections
from latent_core.vectors.qdrant.connection import QdrantAddress, QdrantConnection, connect
from latent_core.vectors.qdrant.points import (
    batches,
    completed,
    filter_of,
    id_of,
    in_order,
    stored_point,
    strings,
    vector_hits,
)
from latent_core.vectors.qdrant.tenants import tenant_of, tenant_payload

HNSW_SEARCH: Final = 64
"""The minimum; a search for more candidates uses their number."""
OVERSAMPLING: Final = 2.0
_POINTS_PER_REQUEST: Final = 256
_POINTS_PER_SCROLL: Final = 1000
_TIE_MARGIN: Final = 16
_TIE_GROWTH: Final = 4
_TIE_LIMIT: Final = 4096
_LAST_ID: Final = (1 << 128) - 1


class QdrantVectorIndex:
    """``VectorIndex`` on a Qdrant server or cluster."""

    def __init__(self, connection: QdrantConnection) -> None:
        self._connection = connection
        self._client = connection.client
        self._collections = QdrantCollections(connection)
        self._coalescer = WriteCoalescer(self._store)

    @classmethod
    async def open(
        cls,
        address: QdrantAddress,
        installation: Installation,
        policy: MarkerPolicy = MarkerPolicy.REQUIRE,
        *,
        deadline_seconds: float = 10.0,
    ) -> Self:
        """Raises as ``QdrantConnection.open``."""
        connection = QdrantConnection(
            connect(address, deadline_seconds),
            installation,
            policy,
            prefix=address.prefix,
            deadline_seconds=deadline_seconds,
        )
        try:
            await connection.open()
        except BaseException:
            await connection.close()
            raise
        return cls(connection)

    async def create_collection(
        self, name: str, dims: int, layout: CollectionLayout = CollectionLayout()
    ) -> None:
        await self._collections.create(name, dims, layout)

    async def drop_collection(self, name: str) -> None:
        await self._connection.verify()
        try:
            if tenant_of(name) is not None:
                await self._delete(name, filter_of(name))
            else:
                await self._collections.drop(name)
        except NotFound:
            return

    async def collections(self) -> list[str]:
        return await self._collections.names()

    async def upsert(self, collection: str, points: Points) -> None:
        vectors = checked_points(points)
        await self._collections.check_dims(collection, vectors.shape[1])
        await self._coalescer.upsert(collection, points)

    async def search(
        self, collection: str, vector: Vector, k: int, *, allowed: Sequence[PointId] | None = None
    ) -> VectorHits:
        query = checked_query(vector, k)
        await self._collections.check_dims(collection, len(query))
        if k == 0 or (allowed is not None and not allowed):
            await self._collections.stored_dims(collection)
            return vector_hits([], 0)
        limits = await self._collections.limits(collection)
        if allowed is None:
            return vector_hits(
                await self._nearest_of(collection, query, k, filter_of(collection)), k
            )
        found: list[models.ScoredPoint] = []
        for part in limits.parts(allowed):
            chosen = filter_of(collection, ids=part)
            found += await self._nearest_of(collection, query, k, chosen)
        return vector_hits(in_order(found), k)

    async def vectors(
        self, collection: str, ids: Sequence[PointId], *, all_replicas: bool = False
    ) -> dict[PointId, Vector]:
        consistency = models.ReadConsistencyType.ALL if all_replicas else None
        if not ids:
            await self._collections.stored_dims(collection)
        found: dict[PointId, Vector] = {}
        size = capped(_POINTS_PER_REQUEST, (await self._collections.limits(collection)).retrieve)
        for start in range(0, len(ids), size):
            part = strings(ids[start : start + size])
            records = await self._retrieve(
                collection, part, with_vectors=True, consistency=consistency
            )
            for record in records:
                found[id_of(record)] = np.asarray(record.vector, dtype=np.float32)
        return found

    async def delete(
        self, collection: str, doc_id: UUID, *, below: int | None = None, only: int | None = None
    ) -> int:
        if below is not None and only is not None:
            raise Invalid("set either below or only, not both")
        chosen = filter_of(collection, doc_id, below=below, only=only)
        try:
            counted = await self._count(collection, chosen)
            if counted:
                await self._delete(collection, chosen)
        except NotFound:
            return 0
        return counted

    async def delete_points(self, collection: str, ids: Sequence[PointId]) -> None:
        try:
            limits = await self._collections.limits(collection)
            size = capped(_POINTS_PER_REQUEST, limits.condition)
            for start in range(0, len(ids), size):
                chosen = filter_of(collection, ids=ids[start : start + size])
                if await self._count(collection, chosen):
                    await self._delete(collection, chosen)
        except NotFound:
            return

    async def count(
        self, collection: str, *, doc_id: UUID | None = None, generation: int | None = None
    ) -> int:
        return await self._count(collection, filter_of(collection, doc_id, only=generation))

    async def scroll(
        self, collection: str, *, after: PointId | None, limit: int
    ) -> list[StoredPoint]:
        found: list[StoredPoint] = []
        start = after.int + 1 if after is not None else 0
        while start <= _LAST_ID and len(found) < limit:
            page_limit = capped(
                _POINTS_PER_SCROLL, (await self._collections.limits(collection)).query
            )
            page_size = min(limit - len(found), page_limit)
            async with self._connection.call(collection):
                records, _ = await self._client.scroll(
                    self._connection.named(collection),
                    scroll_filter=filter_of(collection),
                    limit=page_size,
                    offset=str(UUID(int=start)),
                    with_payload=True,
                    with_vectors=False,
                    timeout=self._collections.within(collection),
                )
            found += [stored_point(record) for record in records]
            if len(records) < page_size:
                return found
            start = found[-1].id.int + 1
        if not found:
            await self._collections.stored_dims(collection)
        return found

    async def close(self) -> None:
        await self._connection.close()

    async def _store(self, collection: str, points: Points) -> None:
        vectors = checked_points(points)
        await self._connection.verify(WRITE_CHECK_SECONDS)
        page_limit = (await self._collections.limits(collection)).upsert
        for part in batches(*vectors.shape, page_limit=capped(_POINTS_PER_REQUEST, page_limit)):
            await self._upsert(collection, points, vectors, part)

    async def _upsert(
        self, collection: str, points: Points, vectors: NDArray[np.float32], part: slice
    ) -> None:
        ids = strings(points.ids[part])
        if not ids:
            await self._collections.stored_dims(collection)
            return
        tenant = tenant_payload(collection)
        columns = zip(
            points.doc_ids[part], points.generations[part], points.chunk_nos[part], strict=True
        )
        batch = models.Batch(
            ids=ids,
            vectors=vectors[part].tolist(),
            payloads=[
                {"doc_id": str(doc), "generation": generation, "chunk_no": chunk_no} | tenant
                for doc, generation, chunk_no in columns
            ],
        )
        async with self._connection.call(collection):
            completed(
                await self._client.upsert(
                    self._connection.named(collection),
                    batch,
                    wait=True,
                    timeout=self._collections.within(collection),
                ),
                collection,
            )
        stored = {id_of(r) for r in await self._retrieve(collection, ids, with_vectors=False)}
        lacking = len(set(points.ids[part]) - stored)
        if lacking:
            raise Unavailable(
                f"{lacking} of {len(ids)} vectors are not in {collection} after they were written",
                collection=collection,
            )

    async def _nearest_of(
        self, collection: str, query: NDArray[np.float32], k: int, chosen: models.Filter | None
    ) -> list[models.ScoredPoint]:
        """The ``k`` nearest and all with the score of the last one, within strict mode's limits."""
        page_limit = (await self._collections.limits(collection)).query
        margin = _TIE_MARGIN
        while True:
            limit = capped(k + margin, page_limit)
            found = await self._nearest(collection, query, limit, chosen)
            # The engine cuts equal scores arbitrarily: fetch more until none at the cut is missing.
            certain = len(found) < limit or (k < limit and found[k - 1].score > found[-1].score)
            if certain or margin > _TIE_LIMIT or limit == page_limit:
                return found
            margin *= _TIE_GROWTH

    async def _nearest(
        self, collection: str, query: NDArray[np.float32], limit: int, chosen: models.Filter | None
    ) -> list[models.ScoredPoint]:
        """Best first; equal scores by chunk_no."""
        limits = await self._collections.limits(collection)
        async with self._connection.call(collection):
            answer = await self._client.query_points(
                self._connection.named(collection),
                query=query.tolist(),
                query_filter=chosen,
                search_params=models.SearchParams(
                    hnsw_ef=capped(max(HNSW_SEARCH, limit), limits.hnsw_ef),
                    quantization=models.QuantizationSearchParams(
                        rescore=True,
                        oversampling=min(OVERSAMPLING, limits.oversampling or OVERSAMPLING),
                    ),
                ),
                limit=limit,
                with_payload=["chunk_no"],
                with_vectors=False,
                timeout=self._collections.within(collection),
            )
        return in_order(answer.points)

    async def _retrieve(
        self,
        collection: str,
        ids: list[models.ExtendedPointId],
        *,
        with_vectors: bool,
        consistency: models.ReadConsistencyType | None = None,
    ) -> list[models.Record]:
        async with self._connection.call(collection):
            return await self._client.retrieve(
                self._connection.named(collection),
                ids,
                with_payload=False,
                with_vectors=with_vectors,
                consistency=consistency,
                timeout=self._collections.within(collection),
            )

    async def _count(self, collection: str, chosen: models.Filter | None) -> int:
        if not (await self._collections.limits(collection)).exact:
            return await self._count_ids(collection, chosen)
        async with self._connection.call(collection):
            answer = await self._client.count(
                self._connection.named(collection),
                count_filter=chosen,
                exact=True,
                timeout=self._collections.within(collection),
            )
        return answer.count

    async def _count_ids(self, collection: str, chosen: models.Filter | None) -> int:
        """For a server whose strict mode refuses exact counts: by listing the ids."""
        return sum([len(ids) async for ids in self._id_pages(collection, chosen)])

    async def _id_pages(
        self, collection: str, chosen: models.Filter | None, page_size: int = _POINTS_PER_SCROLL
    ) -> AsyncIterator[list[models.ExtendedPointId]]:
        """The ids in ascending order, by pages of at most ``page_size``."""
        limit = capped(page_size, (await self._collections.limits(collection)).query)
        start = 0
        while start <= _LAST_ID:
            async with self._connection.call(collection):
                records, _ = await self._client.scroll(
                    self._connection.named(collection),
                    scroll_filter=chosen,
                    limit=limit,
                    offset=str(UUID(int=start)),
                    with_payload=False,
                    with_vectors=False,
                    timeout=self._collections.within(collection),
                )
            yield [record.id for record in records]
            if len(records) < limit:
                return
            start = id_of(records[-1]).int + 1

    async def _delete(self, collection: str, chosen: models.Filter | None) -> None:
        if chosen is None:
            raise ValueError("a delete must name what it deletes")
        await self._connection.verify()
        try:
            await self._delete_within_limit(collection, chosen)
        except Misconfigured:
            # The limit is lower than the cached one, which the refusal has removed.
            await self._delete_within_limit(collection, chosen)
        left = await self._count(collection, chosen)
        if left:
            raise Unavailable(
                f"{left} vectors are still in {collection} after they were deleted",
                collection=collection,
            )

    async def _delete_within_limit(self, collection: str, chosen: models.Filter) -> None:
        """By one request. Beyond the server's limit in parts, of which an attempt may do some before it has to wait."""
        limit = (await self._collections.limits(collection)).write
        if limit is None or await self._count(collection, chosen) <= limit:
            await self._delete_points(collection, models.FilterSelector(filter=chosen))
            return
        async for ids in self._id_pages(collection, chosen, capped(_POINTS_PER_REQUEST, limit)):
            if ids:
                await self._delete_points(collection, models.PointIdsList(points=ids))

    async def _delete_points(
        self, collection: str, selector: models.FilterSelector | models.PointIdsList
    ) -> None:
        async with self._connection.call(collection):
            completed(
                await self._client.delete(
                    self._connection.named(collection),
                    selector,
                    wait=True,
                    timeout=self._collections.within(collection),
                ),
                collection,
            )
