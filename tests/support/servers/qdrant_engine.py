"""What the stand-in for a Qdrant server keeps: ``qdrant-client``'s local mode, and the server's own refusals.

Comments name the files of Qdrant's source (1.19) that a behaviour follows.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from qdrant_client import QdrantClient, models

from tests.support.servers import qdrant_strict_mode as strict
from tests.support.servers.qdrant_refusals import (
    already_exists,
    bad_request,
    disk_quota,
    format_error,
    invalid,
    not_found,
    wrong_input,
)

MAX_DIMS: Final = 65_536
MAX_DISK_USAGE_PERCENT: Final = 90
"""The quota of the node, if it has one."""
INDEXED_ONLY: Final = models.StrictModeConfig(
    enabled=True, unindexed_filtering_retrieve=False, unindexed_filtering_update=False
)
"""Filters need an index, as where Qdrant is hosted: so that a missing index is noticed."""
_DEFAULT_LIMIT: Final = 10
_NO_LIMITS: Final = models.StrictModeConfig()
# config/config.yaml
_HNSW: Final[Mapping[str, Any]] = {
    "m": 16,
    "ef_construct": 100,
    "full_scan_threshold": 10_000,
    "max_indexing_threads": 0,
    "on_disk": False,
}
_OPTIMIZERS: Final[Mapping[str, Any]] = {
    "deleted_threshold": 0.2,
    "vacuum_min_vector_number": 1000,
    "default_segment_number": 0,
    "max_segment_size": None,
    "memmap_threshold": None,
    "indexing_threshold": 10_000,
    "flush_interval_sec": 5,
    "max_optimization_threads": None,
    "prevent_unoptimized": None,
}
_WAL: Final[Mapping[str, Any]] = {
    "wal_capacity_mb": 32,
    "wal_segments_ahead": 0,
    "wal_retain_closed": 1,
}


@dataclass
class _FakeCollection:
    """What local mode forgets of a collection."""

    request: models.CreateCollection
    indexes: dict[str, models.PayloadFieldSchema] = field(default_factory=dict)
    values: dict[str, set[Any]] = field(default_factory=dict)
    """Of all fields, also those of deleted points."""
    limiters: dict[str, strict.FakeRateLimiter] = field(default_factory=dict)

    @property
    def vectors(self) -> models.VectorParams:
        if not isinstance(self.request.vectors, models.VectorParams):
            raise bad_request("the stand-in knows unnamed vectors only")
        return self.request.vectors

    def check_dims(self, found: int) -> None:
        """src/common/validate_vectors.rs."""
        if found != self.vectors.size:
            raise wrong_input(
                f"Vector dimension error: expected dim: {self.vectors.size}, got {found}"
            )


class FakeQdrantEngine:
    """Answers are the JSON below ``result``. Not for several threads at a time."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._local = QdrantClient(":memory:", force_disable_check_same_thread=True)
        self._kept: dict[str, _FakeCollection] = {}
        self._operations = 0
        self._clock = clock
        self.strict = INDEXED_ONLY
        """Of all collections that have no limits of their own."""
        self.disk_used_percent = 0
        """From ``MAX_DISK_USAGE_PERCENT`` on, writes are refused by the quota; deletes are not."""

    def names(self) -> Any:
        return {"collections": [{"name": name} for name in sorted(self._kept)]}

    def exists(self, name: str) -> Any:
        return {"exists": name in self._kept}

    def created_as(self, name: str) -> models.CreateCollection:
        """For tests: what the collection was asked to be."""
        return self._of(name).request

    def indexes(self, name: str) -> dict[str, models.PayloadFieldSchema]:
        """For tests: the payload indexes as they were requested."""
        return self._of(name).indexes

    def info(self, name: str) -> Any:
        """``CollectionInfo`` of lib/collection/src/operations/types.rs."""
        kept = self._of(name)
        points = self._local.count(name, exact=True).count
        config = {
            "params": _params(kept),
            "hnsw_config": {**_HNSW, **_jsonable(kept.request.hnsw_config or {})},
            "optimizer_config": dict(_OPTIMIZERS),
            "wal_config": dict(_WAL),
            "quantization_config": _jsonable(kept.request.quantization_config),
        }
        limits = _jsonable(kept.request.strict_mode_config or self.strict)
        if limits:
            config["strict_mode_config"] = limits
        return {
            "status": "green",
            "optimizer_status": "ok",
            "indexed_vectors_count": 0,
            "points_count": points,
            "segments_count": 2,
            "config": config,
            "payload_schema": {
                key: _index_info(schema, points) for key, schema in kept.indexes.items()
            },
            "update_queue": {"length": 0},
        }

    def create(self, name: str, request: models.CreateCollection) -> Any:
        """lib/storage/src/content_manager/toc/create_collection.rs."""
        kept = _FakeCollection(request)
        if kept.vectors.size < 1:
            raise format_error("data did not match any variant of untagged enum VectorsConfig")
        if kept.vectors.size > MAX_DIMS:
            raise invalid(
                "vectors.size", f"value {kept.vectors.size} invalid, must be from 1 to {MAX_DIMS}"
            )
        for key in ("shard_number", "replication_factor", "write_consistency_factor"):
            _check_positive(key, getattr(request, key))
        if name in self._kept:
            raise already_exists(name)
        self._local.create_collection(name, vectors_config=request.vectors)
        self._kept[name] = kept
        return True

    def update(self, name: str, change: models.UpdateCollection) -> Any:
        """``update_collection`` of lib/storage/src/content_manager/toc/collection_meta_ops.rs."""
        kept = self._of(name)
        changed: dict[str, Any] = {}
        if change.params is not None:
            changed |= change.params.model_dump(exclude_none=True)
            if 0 in (changed.get("replication_factor"), changed.get("write_consistency_factor")):
                raise format_error("invalid value: integer `0`, expected a nonzero u32")
        if change.quantization_config is not None:
            off = change.quantization_config == models.Disabled.DISABLED
            changed["quantization_config"] = None if off else change.quantization_config
        if change.hnsw_config is not None:
            changed["hnsw_config"] = _merged(kept.request.hnsw_config, change.hnsw_config)
        if change.strict_mode_config is not None:
            for key in ("max_query_limit", "read_rate_limit", "write_rate_limit"):
                limit = getattr(change.strict_mode_config, key)
                _check_positive(f"strict_mode_config.{key}", limit)
            earlier = kept.request.strict_mode_config
            changed["strict_mode_config"] = _merged(earlier, change.strict_mode_config)
        kept.request = kept.request.model_copy(update=changed)
        return True

    def drop(self, name: str) -> Any:
        if self._kept.pop(name, None) is None:
            return False
        return self._local.delete_collection(name)

    def index(
        self, name: str, request: models.CreateFieldIndex, *, wait: bool, timeout: int | None
    ) -> Any:
        """``do_create_index`` of src/common/update.rs: one of another type replaces the index."""
        kept = self._of(name)
        limits = self._limits(kept)
        strict.check_index_count(kept.indexes, limits)
        strict.check_limit(timeout, limits.max_timeout, "timeout")
        self._check_quota()
        if request.field_schema is None:
            raise bad_request(
                "Can't auto-detect field type, please specify `field_schema` in the request"
            )
        kept.indexes[request.field_name] = request.field_schema
        return self._done(wait)

    def drop_index(self, name: str, field_name: str, *, wait: bool) -> Any:
        self._of(name).indexes.pop(field_name, None)
        return self._done(wait)

    def upsert(
        self,
        name: str,
        given: models.PointsBatch | models.PointsList,
        *,
        wait: bool,
        timeout: int | None,
    ) -> Any:
        """``do_upsert_points`` of src/common/update.rs."""
        points: Any = given.batch if isinstance(given, models.PointsBatch) else given.points
        rows = _checked_rows(points)
        kept = self._of(name)
        limits = self._limits(kept)
        strict.check_limit(len(rows), limits.upsert_max_batchsize, "upsert limit")
        strict.check_limit(timeout, limits.max_timeout, "timeout")
        for row in rows:
            kept.check_dims(len(row))
        if not rows:
            raise bad_request("Empty update request")
        self._check_quota()
        self._spend("Write", kept, limits.write_rate_limit, len(rows))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of local mode, that it is not for large collections
            self._local.upsert(name, points)
        for payload in _payloads(points):
            for key, value in payload.items():
                kept.values.setdefault(key, set()).add(value)
        return self._done(wait)

    def delete(
        self,
        name: str,
        chosen: models.PointIdsList | models.FilterSelector,
        *,
        wait: bool,
        timeout: int | None,
    ) -> Any:
        """``do_delete_points`` of src/common/update.rs: not bound by the quota."""
        kept = self._of(name)
        limits = self._limits(kept)
        if isinstance(chosen, models.FilterSelector):
            unindexed = limits.unindexed_filtering_update
            strict.check_filter(chosen.filter, limits, kept.indexes, unindexed=unindexed)
            cost = self._local.count(name, chosen.filter, exact=True).count
        elif chosen.points:
            cost = len(chosen.points)
        else:
            raise bad_request("Empty update request")
        strict.check_limit(timeout, limits.max_timeout, "timeout")
        self._spend("Write", kept, limits.write_rate_limit, max(1, cost))
        self._local.delete(name, chosen)
        return self._done(wait)

    def retrieve(self, name: str, request: models.PointRequest, *, timeout: int | None) -> Any:
        """src/actix/api/retrieve_api.rs."""
        kept = self._of(name)
        limits = self._limits(kept)
        strict.check_limit(timeout, limits.max_timeout, "timeout")
        self._spend("Read", kept, limits.read_rate_limit, len(request.ids))
        records = self._local.retrieve(
            name,
            list(dict.fromkeys(request.ids)),
            with_payload=request.with_payload or False,
            with_vectors=request.with_vector or False,
        )
        return [_jsonable(record) for record in records]

    def count(self, name: str, request: models.CountRequest, *, timeout: int | None) -> Any:
        """src/actix/api/count_api.rs. ``exact`` is the default."""
        kept = self._of(name)
        self._check_read(kept, request.filter, timeout, exact=request.exact is not False)
        return {"count": self._local.count(name, request.filter, exact=True).count}

    def scroll(self, name: str, request: models.ScrollRequest, *, timeout: int | None) -> Any:
        """src/actix/api/retrieve_api.rs."""
        _check_positive("scroll_request.limit", request.limit)
        if request.offset is not None:
            _check_id(request.offset)
        kept = self._of(name)
        self._check_read(kept, request.filter, timeout, limit=request.limit)
        records, following = self._local.scroll(
            name,
            request.filter,
            limit=request.limit or _DEFAULT_LIMIT,
            offset=request.offset,
            with_payload=True if request.with_payload is None else request.with_payload,
            with_vectors=request.with_vector or False,
        )
        points = [_jsonable(record) for record in records]
        return {"points": points, "next_page_offset": following}

    def facet(self, name: str, request: models.FacetRequest, *, timeout: int | None) -> Any:
        """src/actix/api/facet_api.rs. Without strict mode it needs an index, too. An exact facet without a filter also
        has the values of deleted points."""
        _check_positive("facet_request.limit", request.limit)
        kept = self._of(name)
        self._check_read(
            kept, request.filter, timeout, limit=request.limit, exact=request.exact is True
        )
        if request.key not in kept.indexes:
            raise wrong_input(
                f"No appropriate index for faceting: `{request.key}`. Please create one to facet on this field. Check "
                "https://qdrant.tech/documentation/concepts/indexing/#payload-index to see which payload schemas "
                "support Match conditions"
            )
        limit = request.limit or _DEFAULT_LIMIT
        answer = self._local.facet(name, request.key, request.filter, limit=limit, exact=True)
        hits = _jsonable(answer)["hits"]
        if request.exact and request.filter is None:
            gone = kept.values.get(request.key, set()) - {hit["value"] for hit in hits}
            hits += [{"value": value, "count": 0} for value in sorted(gone)]
        return {"hits": hits[:limit]}

    def query(self, name: str, request: models.QueryRequest, *, timeout: int | None) -> Any:
        """src/actix/api/query_api.rs."""
        _check_positive("internal.limit", request.limit)
        kept = self._of(name)
        limit = request.limit or _DEFAULT_LIMIT
        self._check_read(kept, request.filter, timeout, limit=limit, params=request.params)
        if request.using:
            raise wrong_input(f"Not existing vector name error: {request.using}")
        query: Any = request.query
        if isinstance(query, models.NearestQuery):
            query = query.nearest
        kept.check_dims(len(query))
        among, others = _without_ids(request.filter)
        answer = self._local.query_points(
            name,
            query=query,
            query_filter=others,
            limit=limit if among is None else max(1, self._local.count(name).count),
            with_payload=request.with_payload or False,
            with_vectors=request.with_vector or False,
        )
        found = [p for p in answer.points if among is None or str(p.id) in among][:limit]
        return {"points": [_jsonable(point) for point in found]}

    def _check_read(
        self,
        kept: _FakeCollection,
        chosen: models.Filter | None,
        timeout: int | None,
        *,
        limit: int | None = None,
        exact: bool | None = None,
        params: models.SearchParams | None = None,
    ) -> None:
        """``check_strict_mode`` in its order, then the rate limit of the shard."""
        limits = self._limits(kept)
        strict.check_limit(limit, limits.max_query_limit, "limit")
        unindexed = limits.unindexed_filtering_retrieve
        strict.check_filter(chosen, limits, kept.indexes, unindexed=unindexed)
        strict.check_exact(exact, limits.search_allow_exact)
        strict.check_search_params(params, limits)
        strict.check_limit(timeout, limits.max_timeout, "timeout")
        cost = 1 + sum(1 for _ in strict.conditions(chosen))
        self._spend("Read", kept, limits.read_rate_limit, cost)

    def _limits(self, kept: _FakeCollection) -> models.StrictModeConfig:
        config = kept.request.strict_mode_config or self.strict
        return config if config.enabled else _NO_LIMITS

    def _check_quota(self) -> None:
        if self.disk_used_percent >= MAX_DISK_USAGE_PERCENT:
            raise disk_quota(self.disk_used_percent, MAX_DISK_USAGE_PERCENT)

    def _spend(self, kind: str, kept: _FakeCollection, per_minute: int | None, cost: int) -> None:
        if per_minute is None:
            return
        limiter = kept.limiters.get(kind)
        if limiter is None or limiter.per_minute != per_minute:
            limiter = strict.FakeRateLimiter(kind, per_minute, self._clock())
            kept.limiters[kind] = limiter
        limiter.take(cost, self._clock())

    def _of(self, name: str) -> _FakeCollection:
        if name not in self._kept:
            raise not_found(name)
        return self._kept[name]

    def _done(self, wait: bool) -> Any:
        """``await_update_result`` of lib/collection/src/shards/local_shard/shard_ops.rs."""
        self._operations += 1
        return {
            "operation_id": self._operations,
            "status": "completed" if wait else "acknowledged",
        }


def _params(kept: _FakeCollection) -> dict[str, Any]:
    """``CollectionParams`` of lib/collection/src/config.rs."""
    request = kept.request
    on_disk = True if request.on_disk_payload is None else request.on_disk_payload
    found = {
        "vectors": _jsonable(kept.vectors),
        "shard_number": request.shard_number or 1,
        "replication_factor": request.replication_factor or 1,
        "write_consistency_factor": request.write_consistency_factor or 1,
        "on_disk_payload": on_disk,
    }
    return found if request.payload is None else {**found, "payload": _jsonable(request.payload)}


def _index_info(schema: models.PayloadFieldSchema, points: int) -> dict[str, Any]:
    """``PayloadIndexInfo`` of lib/segment/src/types.rs; as if each point had each field."""
    plain = isinstance(schema, models.PayloadSchemaType)
    params = {} if plain else {"params": _jsonable(schema)}
    return {"data_type": strict.index_type(schema), **params, "points": points}


def _checked_rows(points: Any) -> list[Any]:
    """The vectors. lib/api/src/rest/validate.rs."""
    batch = isinstance(points, models.Batch)
    ids = points.ids if batch else [point.id for point in points]
    rows = points.vectors if batch else [point.vector for point in points]
    for one in ids:
        _check_id(one)
    if len(ids) != len(rows):
        raise invalid(
            "batch.batch", f"number of ids and vectors must be equal ({len(ids)} != {len(rows)})"
        )
    if not all(rows):
        raise invalid("batch.vector", "dense vector must not be empty")
    return list(rows)


def _payloads(points: Any) -> list[dict[str, Any]]:
    if isinstance(points, models.Batch):
        return [payload or {} for payload in points.payloads or []]
    return [point.payload or {} for point in points]


def _check_id(found: object) -> None:
    if found < 0 if isinstance(found, int) else not strict.is_uuid(str(found)):
        raise format_error(
            f"value {found} is not a valid point ID, valid values are either an unsigned integer or a UUID"
        )


def _check_positive(name: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise invalid(name, f"value {value} invalid, must be 1 or larger")


def _without_ids(chosen: models.Filter | None) -> tuple[set[str] | None, models.Filter | None]:
    """The ids that a filter allows, and its other conditions: local mode compares each point with each id."""
    conditions = chosen.must if chosen is not None else None
    if chosen is None or not isinstance(conditions, list):
        return None, chosen
    ids = [one for one in conditions if isinstance(one, models.HasIdCondition)]
    if len(ids) != 1:
        return None, chosen
    others = [one for one in conditions if one is not ids[0]]
    return {str(one) for one in ids[0].has_id}, chosen.model_copy(update={"must": others})


def _merged(earlier: Any, later: Any) -> Any:
    changed = later.model_dump(exclude_none=True)
    return later if earlier is None else earlier.model_copy(update=changed)


def _jsonable(value: Any) -> Any:
    return (
        value.model_dump(mode="json", exclude_none=True) if hasattr(value, "model_dump") else value
    )
