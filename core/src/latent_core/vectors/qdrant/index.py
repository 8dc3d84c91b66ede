"""The vector engine as a server: Qdrant 1.16 or newer, by REST.

The server is never authoritative: a write counts only when its status is ``completed`` and every point exists by id,
and search hits are joined with Postgres. Searches use HNSW: above Qdrant's ``full_scan_threshold`` they find the
nearest points with high recall, not with certainty.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
import warnings
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Self
from uuid import UUID

import httpx
import numpy as np
from numpy.typing import NDArray
from pydantic import SecretStr
from qdrant_client import AsyncQdrantClient, models

from latent_core.domain.chunk import Vector
from latent_core.domain.errors import (
    Conflict,
    Invalid,
    NotFound,
    StoreFull,
    TimedOut,
    Unavailable,
    UpstreamError,
    UpstreamOverload,
)
from latent_core.domain.ids import SHARED, WITHIN, PointId
from latent_core.domain.installation import WRITE_CHECK_SECONDS, Installation, MarkerPolicy
from latent_core.domain.service_health import ServiceHealth
from latent_core.vectors.edge.write_coalescer import WriteCoalescer
from latent_core.vectors.port import (
    CollectionLayout,
    Points,
    StoredPoint,
    VectorHits,
    checked_points,
    checked_query,
)
from latent_core.vectors.qdrant.collection_info import (
    CollectionInfo,
    StrictModeLimits,
    capped,
    read_collection,
)
from latent_core.vectors.qdrant.errors import NotConnected, NotReadable, mapped_errors
from latent_core.vectors.qdrant.marker import MARKER, QdrantMarker
from latent_core.vectors.qdrant.nodes import NodesTransport, addresses
from latent_core.vectors.qdrant.tenants import (
    COLLECTION_FIELD,
    MAX_TENANTS,
    TENANT_FIELDS,
    server_collection,
    tenant_conditions,
    tenant_of,
    tenant_payload,
)

logger = logging.getLogger(__name__)

HNSW_LINKS: Final = 32
HNSW_BUILD: Final = 256
HNSW_SEARCH: Final = 64
"""The minimum; a search for more candidates uses their number."""
QUANTIZE_FROM_POINTS: Final = 300_000
OVERSAMPLING: Final = 2.0
MIN_VERSION: Final = (1, 16)
_POINTS_PER_REQUEST: Final = 256
_FLOATS_PER_REQUEST: Final = 1_000_000
"""About 12 MB of JSON; the server's limit is 32 MB per request."""
_POINTS_PER_SCROLL: Final = 1000
_CREATION_PAUSE_SECONDS: Final = 0.1
_TIE_MARGIN: Final = 16
_TIE_GROWTH: Final = 4
_TIE_LIMIT: Final = 4096
_LAST_ID: Final = (1 << 128) - 1
_INDEXED: Final[dict[str, models.PayloadFieldSchema]] = {
    "doc_id": models.PayloadSchemaType.UUID,
    "generation": models.PayloadSchemaType.INTEGER,
}
_INT8: Final = models.ScalarQuantization(
    scalar=models.ScalarQuantizationConfig(type=models.ScalarType.INT8, always_ram=True)
)


@dataclass(frozen=True, slots=True)
class QdrantAddress:
    """``url``: the addresses of the server's nodes, separated by commas; and the ``prefix`` of our collections'
    names."""

    url: str
    api_key: SecretStr | None = None
    prefix: str = ""


class QdrantVectorIndex:
    """``VectorIndex`` on a Qdrant server or cluster."""

    def __init__(
        self,
        client: AsyncQdrantClient,
        installation: Installation,
        policy: MarkerPolicy,
        *,
        prefix: str = "",
        deadline_seconds: float = 10.0,
    ) -> None:
        self._client = client
        self._prefix = f"{prefix}{installation.id}_"
        self._marker = QdrantMarker(client, f"{self._prefix}{MARKER}", installation)
        self._policy = policy
        self._settled = False
        self._deadline_seconds = deadline_seconds
        self._health = ServiceHealth("qdrant")
        self._coalescer = WriteCoalescer(self._store)
        self._dims: dict[str, int] = {}
        self._limits: dict[str, StrictModeLimits] = {}

    @classmethod
    async def open(
        cls,
        address: QdrantAddress,
        installation: Installation,
        policy: MarkerPolicy = MarkerPolicy.REQUIRE,
        *,
        deadline_seconds: float = 10.0,
    ) -> Self:
        """``Invalid`` when the server is unsuitable, ``Misconfigured`` when its collections belong to another holder,
        ``ServiceUnreachable`` when it refuses the key. A server that is away or full is checked before the first
        call that it answers instead, except by ``latent adopt``, which needs it now."""
        index = cls(
            _client(address, deadline_seconds),
            installation,
            policy,
            prefix=address.prefix,
            deadline_seconds=deadline_seconds,
        )
        try:
            await index._settle_identity()
        except (NotConnected, TimedOut, UpstreamError, UpstreamOverload, StoreFull) as exc:
            if policy is MarkerPolicy.TAKE_OVER:
                await index.close()
                raise
            logger.warning("qdrant_not_checked", extra={"cause": exc.message})
        except BaseException:
            await index.close()
            raise
        return index

    async def _settle_identity(self) -> None:
        """Check the server's version, and create or check the marker. Repeating it is harmless."""
        async with self._request(""):
            server_info = await self._client.info()
        _check_version(server_info.version)
        async with self._request(""):
            await self._marker.settle(self._policy)
        self._settled = True

    async def create_collection(
        self, name: str, dims: int, layout: CollectionLayout = CollectionLayout()
    ) -> None:
        if dims < 1:
            raise Invalid(f"a collection of {dims} dimensions cannot be created")
        if tenant_of(name) is not None and self._dims.get(server_collection(name)) == dims:
            return  # hundreds of containers may share one that was checked before
        await self._verify(WRITE_CHECK_SECONDS)
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

    async def drop_collection(self, name: str) -> None:
        self._forget(name)
        await self._verify()
        try:
            if tenant_of(name) is not None:
                await self._delete(name, _chosen(name))
                return
            async with self._call(name):
                await self._client.delete_collection(self._named(name), timeout=self._seconds)
        except NotFound:
            return

    async def collections(self) -> list[str]:
        async with self._call(""):
            answer = await self._client.get_collections()
        names = (one.name for one in answer.collections)
        ours = [n.removeprefix(self._prefix) for n in names if n.startswith(self._prefix)]
        shared = [n for n in ours if n.startswith(SHARED)]
        found = [n for n in ours if n != MARKER and n not in shared]
        for name in shared:
            found += [f"{name}{WITHIN}{tenant}" for tenant in await self._tenants(name)]
        return found

    async def upsert(self, collection: str, points: Points) -> None:
        vectors = checked_points(points)
        await self._check_dims(collection, vectors.shape[1])
        await self._coalescer.upsert(collection, points)

    async def search(
        self, collection: str, vector: Vector, k: int, *, allowed: Sequence[PointId] | None = None
    ) -> VectorHits:
        query = checked_query(vector, k)
        await self._check_dims(collection, len(query))
        if k == 0 or (allowed is not None and not allowed):
            await self._stored_dims(collection)
            return _hits([], 0)
        limits = await self._allowed(collection)
        if allowed is None:
            return _hits(await self._nearest_of(collection, query, k, _chosen(collection)), k)
        found: list[models.ScoredPoint] = []
        for part in limits.parts(allowed):
            chosen = _chosen(collection, ids=part)
            found += await self._nearest_of(collection, query, k, chosen)
        return _hits(_in_order(found), k)

    async def vectors(
        self, collection: str, ids: Sequence[PointId], *, all_replicas: bool = False
    ) -> dict[PointId, Vector]:
        consistency = models.ReadConsistencyType.ALL if all_replicas else None
        if not ids:
            await self._stored_dims(collection)
        found: dict[PointId, Vector] = {}
        size = capped(_POINTS_PER_REQUEST, (await self._allowed(collection)).retrieve)
        for start in range(0, len(ids), size):
            part = _strings(ids[start : start + size])
            records = await self._retrieve(
                collection, part, with_vectors=True, consistency=consistency
            )
            for record in records:
                found[_id(record)] = np.asarray(record.vector, dtype=np.float32)
        return found

    async def delete(
        self, collection: str, doc_id: UUID, *, below: int | None = None, only: int | None = None
    ) -> int:
        if below is not None and only is not None:
            raise Invalid("set either below or only, not both")
        chosen = _chosen(collection, doc_id, below=below, only=only)
        try:
            counted = await self._count(collection, chosen)
            if counted:
                await self._delete(collection, chosen)
        except NotFound:
            return 0
        return counted

    async def count(
        self, collection: str, *, doc_id: UUID | None = None, generation: int | None = None
    ) -> int:
        return await self._count(collection, _chosen(collection, doc_id, only=generation))

    async def scroll(
        self, collection: str, *, after: PointId | None, limit: int
    ) -> list[StoredPoint]:
        found: list[StoredPoint] = []
        start = after.int + 1 if after is not None else 0
        while start <= _LAST_ID and len(found) < limit:
            page_limit = capped(_POINTS_PER_SCROLL, (await self._allowed(collection)).query)
            page_size = min(limit - len(found), page_limit)
            async with self._call(collection):
                records, _ = await self._client.scroll(
                    self._named(collection),
                    scroll_filter=_chosen(collection),
                    limit=page_size,
                    offset=str(UUID(int=start)),
                    with_payload=True,
                    with_vectors=False,
                    timeout=self._within(collection),
                )
            found += [_stored(record) for record in records]
            if len(records) < page_size:
                return found
            start = found[-1].id.int + 1
        if not found:
            await self._stored_dims(collection)
        return found

    async def close(self) -> None:
        await self._client.close()

    async def _store(self, collection: str, points: Points) -> None:
        vectors = checked_points(points)
        await self._verify(WRITE_CHECK_SECONDS)
        page_limit = (await self._allowed(collection)).upsert
        for part in _batches(*vectors.shape, page_limit=capped(_POINTS_PER_REQUEST, page_limit)):
            await self._upsert(collection, points, vectors, part)

    def _named(self, collection: str) -> str:
        """The collection on the server."""
        return self._prefix + server_collection(collection)

    def _forget(self, collection: str) -> None:
        """Drop what is cached of a collection: it may be gone or changed."""
        self._dims.pop(server_collection(collection), None)
        self._limits.pop(server_collection(collection), None)

    @property
    def _seconds(self) -> int:
        """The server's timeout, no later than ours."""
        return max(1, math.floor(self._deadline_seconds))

    def _within(self, collection: str) -> int:
        """``_seconds``, limited by strict mode."""
        known = self._limits.get(server_collection(collection))
        return self._seconds if known is None else capped(self._seconds, known.timeout)

    @asynccontextmanager
    async def _call(self, collection: str) -> AsyncIterator[None]:
        """For one request on ``collection``; the first one settles whose collections these are."""
        if not self._settled:
            await self._settle_identity()
        async with self._request(collection):
            yield

    @asynccontextmanager
    async def _request(self, collection: str) -> AsyncIterator[None]:
        with mapped_errors(collection, self._deadline_seconds, self._health):
            try:
                async with asyncio.timeout(self._deadline_seconds):
                    yield
            except BaseException:
                self._forget(collection)
                raise

    async def _verify(self, max_age_seconds: float = 0.0) -> None:
        """``Misconfigured`` if another database now holds this installation."""
        async with self._call(""):
            await self._marker.verify(max_age_seconds)

    async def _create(self, name: str, dims: int, layout: CollectionLayout) -> None:
        async with self._call(name):
            await self._client.create_collection(
                self._named(name),
                vectors_config=models.VectorParams(size=dims, distance=models.Distance.COSINE),
                shard_number=layout.shards,
                replication_factor=layout.replicas,
                write_consistency_factor=_acknowledgements(layout.replicas),
                on_disk_payload=True,
                hnsw_config=_hnsw(name),
                quantization_config=_INT8 if layout.quantization == "int8" else None,
                timeout=self._seconds,
            )

    async def _index_fields(self, name: str, indexed: set[str]) -> None:
        """Also of an existing collection: its creator may have been killed before."""
        needed = _INDEXED if tenant_of(name) is None else _INDEXED | TENANT_FIELDS
        for field in sorted(set(needed) - indexed):
            async with self._call(name):
                _completed(
                    await self._client.create_payload_index(
                        self._named(name), field, needed[field], wait=True
                    ),
                    name,
                )

    async def _tenants(self, name: str) -> list[str]:
        """The collections with points in a shared one."""
        limits = await self._allowed(name)
        limit = capped(MAX_TENANTS, limits.query)
        found: dict[str, int] = {}
        while True:
            seen = models.MatchAny(any=list(found))
            others = models.FieldCondition(key=COLLECTION_FIELD, match=seen)
            async with self._call(name):
                answer = await self._client.facet(
                    self._named(name),
                    COLLECTION_FIELD,
                    facet_filter=models.Filter(must_not=[others]) if found else None,
                    limit=limit,
                    exact=limits.exact,
                    timeout=self._within(name),
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
            async with self._call(name):
                await self._client.update_collection(
                    self._named(name), collection_params=params, timeout=self._seconds
                )
        quantized = info.quantization is not None
        large = (info.points or 0) > QUANTIZE_FROM_POINTS
        page_size = large if layout.quantization is None else layout.quantization == "int8"
        if page_size == quantized or (quantized and layout.quantization is None):
            return
        async with self._call(name):
            await self._client.update_collection(
                self._named(name),
                quantization_config=_INT8 if page_size else models.Disabled.DISABLED,
                timeout=self._seconds,
            )

    async def _info(self, name: str) -> CollectionInfo:
        async with self._call(name):
            return await read_collection(self._client, self._named(name))

    async def _created(self, name: str) -> CollectionInfo:
        """``_info`` once all that creates the collection is done: another process may be at it."""
        until = time.monotonic() + self._deadline_seconds
        while True:
            try:
                return await self._info(name)
            except NotReadable:
                if time.monotonic() >= until:
                    raise
                await asyncio.sleep(_CREATION_PAUSE_SECONDS)

    async def _stored_dims(self, name: str) -> int:
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

    async def _allowed(self, name: str) -> StrictModeLimits:
        """The server's limits, cached."""
        key = server_collection(name)
        if key not in self._limits:
            await self._stored_dims(name)
        return self._limits[key]

    async def _check_dims(self, name: str, given: int) -> None:
        key = server_collection(name)
        if self._dims.get(key) != given and await self._stored_dims(name) != given:
            raise Invalid(
                f"vector collection {name} has {self._dims[key]} dimensions, not {given}",
                collection=name,
            )

    async def _upsert(
        self, collection: str, points: Points, vectors: NDArray[np.float32], part: slice
    ) -> None:
        ids = _strings(points.ids[part])
        if not ids:
            await self._stored_dims(collection)
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
        async with self._call(collection):
            _completed(
                await self._client.upsert(
                    self._named(collection), batch, wait=True, timeout=self._within(collection)
                ),
                collection,
            )
        stored = {_id(r) for r in await self._retrieve(collection, ids, with_vectors=False)}
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
        page_limit = (await self._allowed(collection)).query
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
        limits = await self._allowed(collection)
        async with self._call(collection):
            answer = await self._client.query_points(
                self._named(collection),
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
                timeout=self._within(collection),
            )
        return _in_order(answer.points)

    async def _retrieve(
        self,
        collection: str,
        ids: list[models.ExtendedPointId],
        *,
        with_vectors: bool,
        consistency: models.ReadConsistencyType | None = None,
    ) -> list[models.Record]:
        async with self._call(collection):
            return await self._client.retrieve(
                self._named(collection),
                ids,
                with_payload=False,
                with_vectors=with_vectors,
                consistency=consistency,
                timeout=self._within(collection),
            )

    async def _count(self, collection: str, chosen: models.Filter | None) -> int:
        if not (await self._allowed(collection)).exact:
            return await self._count_ids(collection, chosen)
        async with self._call(collection):
            answer = await self._client.count(
                self._named(collection),
                count_filter=chosen,
                exact=True,
                timeout=self._within(collection),
            )
        return answer.count

    async def _count_ids(self, collection: str, chosen: models.Filter | None) -> int:
        """For a server whose strict mode refuses exact counts: by listing the ids."""
        limit = capped(_POINTS_PER_SCROLL, (await self._allowed(collection)).query)
        counted, start = 0, 0
        while start <= _LAST_ID:
            async with self._call(collection):
                records, _ = await self._client.scroll(
                    self._named(collection),
                    scroll_filter=chosen,
                    limit=limit,
                    offset=str(UUID(int=start)),
                    with_payload=False,
                    with_vectors=False,
                    timeout=self._within(collection),
                )
            counted += len(records)
            if len(records) < limit:
                break
            start = _id(records[-1]).int + 1
        return counted

    async def _delete(self, collection: str, chosen: models.Filter | None) -> None:
        if chosen is None:
            raise ValueError("a delete must name what it deletes")
        await self._verify()
        async with self._call(collection):
            _completed(
                await self._client.delete(
                    self._named(collection),
                    models.FilterSelector(filter=chosen),
                    wait=True,
                    timeout=self._within(collection),
                ),
                collection,
            )
        left = await self._count(collection, chosen)
        if left:
            raise Unavailable(
                f"{left} vectors are still in {collection} after they were deleted",
                collection=collection,
            )


def _client(address: QdrantAddress, deadline_seconds: float) -> AsyncQdrantClient:
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


def _completed(result: models.UpdateResult, collection: str) -> None:
    """``wait`` may end early: then the server has only acknowledged the write."""
    if result.status != models.UpdateStatus.COMPLETED:
        raise Unavailable(
            f"Qdrant did not complete a write to {collection} in time: its status is '{result.status}'",
            collection=collection,
        )


def _acknowledgements(replicas: int) -> int:
    """The replicas that must have a write before the server answers. Vectors can be derived again, so that one of two
    suffices, and writes go on when a node is dead; from three on it is the majority."""
    return 1 if replicas <= 2 else replicas // 2 + 1


def _batches(count: int, dims: int, *, page_limit: int) -> Iterator[slice]:
    """Slices of a bounded size; one even without points, so that the collection is checked."""
    size = max(1, min(page_limit, _FLOATS_PER_REQUEST // max(1, dims)))
    for start in range(0, max(1, count), size):
        yield slice(start, start + size)


def _chosen(
    collection: str,
    doc_id: UUID | None = None,
    *,
    below: int | None = None,
    only: int | None = None,
    ids: Sequence[PointId] | None = None,
) -> models.Filter | None:
    """The points of ``collection`` that meet all conditions; None for all of the collection on the server."""
    conditions: list[Any] = tenant_conditions(collection)
    if doc_id is not None:
        match = models.MatchValue(value=str(doc_id))
        conditions.append(models.FieldCondition(key="doc_id", match=match))
    if below is not None:
        bound = models.Range(lt=below)
        conditions.append(models.FieldCondition(key="generation", range=bound))
    if only is not None:
        exactly = models.MatchValue(value=only)
        conditions.append(models.FieldCondition(key="generation", match=exactly))
    if ids is not None:
        conditions.append(models.HasIdCondition(has_id=_strings(ids)))
    return models.Filter(must=conditions) if conditions else None


def _hnsw(name: str) -> models.HnswConfigDiff:
    """A shared collection is never searched as a whole: it has a graph per tenant, and none over all points."""
    if tenant_of(name) is None:
        return models.HnswConfigDiff(m=HNSW_LINKS, ef_construct=HNSW_BUILD)
    return models.HnswConfigDiff(m=0, payload_m=HNSW_LINKS, ef_construct=HNSW_BUILD)


def _strings(ids: Sequence[UUID]) -> list[models.ExtendedPointId]:
    return [str(one) for one in ids]


def _id(record: models.Record) -> PointId:
    return PointId(UUID(str(record.id)))


def _in_order(hits: Sequence[models.ScoredPoint]) -> list[models.ScoredPoint]:
    # In single precision, as the server answers: values that round to the same are equal.
    return sorted(hits, key=lambda hit: (-np.float32(hit.score), _chunk_no(hit)))


def _chunk_no(hit: models.ScoredPoint) -> int:
    return int((hit.payload or {})["chunk_no"])


def _hits(found: Sequence[models.ScoredPoint], k: int) -> VectorHits:
    kept = found[:k]
    return VectorHits(
        np.array([_chunk_no(hit) for hit in kept], dtype=np.int64),
        np.array([hit.score for hit in kept], dtype=np.float32),
    )


def _stored(record: models.Record) -> StoredPoint:
    payload = record.payload or {}
    return StoredPoint(
        _id(record), UUID(payload["doc_id"]), int(payload["generation"]), int(payload["chunk_no"])
    )
