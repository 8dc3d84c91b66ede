"""What the stand-in for a Qdrant server keeps: ``qdrant-client``'s local mode, and the server's own refusals."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from qdrant_client import QdrantClient, models


class FakeRefusal(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class _CollectionSettings:
    """What local mode forgets of a collection."""

    request: models.CreateCollection
    quantization: Any
    indexed: dict[str, str] = field(default_factory=dict)
    requested: dict[str, Any] = field(default_factory=dict)
    """The payload indexes as they were requested."""

    @property
    def dims(self) -> int:
        sizes = self.request.vectors
        if not isinstance(sizes, models.VectorParams):
            raise FakeRefusal(400, "the stand-in knows unnamed vectors only")
        return sizes.size


class FakeQdrantEngine:
    """Answers are the JSON below ``result``. Not for several threads at a time."""

    def __init__(self) -> None:
        self._local = QdrantClient(":memory:", force_disable_check_same_thread=True)
        self._kept: dict[str, _CollectionSettings] = {}
        self._operations = 0
        self.strict = models.StrictModeConfig()
        """Of all collections: some of its limits are kept."""

    def names(self) -> Any:
        return {"collections": [{"name": name} for name in self._kept]}

    def exists(self, name: str) -> Any:
        return {"exists": name in self._kept}

    def created_as(self, name: str) -> models.CreateCollection:
        """For tests: what the collection was asked to be."""
        return self._of(name).request

    def info(self, name: str) -> Any:
        kept = self._of(name)
        info_json = self._local.get_collection(name).model_dump(mode="json")
        params = info_json["config"]["params"]
        request = kept.request.model_dump(mode="json")
        for key in ("shard_number", "replication_factor", "write_consistency_factor"):
            params[key] = request[key]
        params["on_disk_payload"] = request["on_disk_payload"]
        info_json["config"]["hnsw_config"] |= {
            key: value for key, value in (request["hnsw_config"] or {}).items() if value is not None
        }
        info_json["config"]["strict_mode_config"] = self.strict.model_dump(mode="json")
        info_json["config"]["quantization_config"] = kept.quantization
        info_json["payload_schema"] = {
            name: {"data_type": schema, "points": info_json["points_count"]}
            for name, schema in kept.indexed.items()
        }
        return info_json

    def create(self, name: str, request: models.CreateCollection) -> Any:
        if name in self._kept:
            raise FakeRefusal(409, f"Wrong input: Collection `{name}` already exists!")
        kept = _CollectionSettings(request, _jsonable(request.quantization_config))
        if kept.dims < 1:
            raise FakeRefusal(
                422, "Validation error in JSON body: [vectors.size: must be 1 to 65536]"
            )
        self._local.create_collection(name, vectors_config=request.vectors)
        self._kept[name] = kept
        return True

    def update(self, name: str, change: models.UpdateCollection) -> Any:
        kept = self._of(name)
        if change.quantization_config is not None:
            given = _jsonable(change.quantization_config)
            kept.quantization = None if given == "Disabled" else given
        if change.params is not None:
            changed = change.params.model_dump(exclude_none=True)
            kept.request = kept.request.model_copy(update=changed)
        return True

    def drop(self, name: str) -> Any:
        if self._kept.pop(name, None) is None:
            return False
        return self._local.delete_collection(name)

    def index(self, name: str, request: models.CreateFieldIndex) -> Any:
        schema = _jsonable(request.field_schema)
        limit = self.strict.max_payload_index_count
        if self.strict.enabled and limit is not None and len(self._of(name).indexed) >= limit:
            # Also for a field that is indexed already (src/common/update.rs).
            raise FakeRefusal(
                400,
                f"Bad request: Collection already has the maximum number of payload indices ({limit}). "
                "Help: Please delete an existing index before creating a new one.",
            )
        self._of(name).requested[request.field_name] = request.field_schema
        self._of(name).indexed[request.field_name] = (
            schema if isinstance(schema, str) else schema["type"]
        )
        return self._done()

    def upsert(self, name: str, given: models.PointsBatch | models.PointsList) -> Any:
        kept = self._of(name)
        points: Any = given.batch if isinstance(given, models.PointsBatch) else given.points
        rows: Any = (
            points.vectors if isinstance(points, models.Batch) else [p.vector for p in points]
        )
        self._check("batch size", len(rows), self.strict.upsert_max_batchsize)
        for row in rows:
            if len(row) != kept.dims:
                raise FakeRefusal(
                    400,
                    f"Wrong input: Vector dimension error: expected dim: {kept.dims}, got {len(row)}",
                )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of local mode, that it is not for large collections
            self._local.upsert(name, points)
        return self._done()

    def delete(self, name: str, chosen: models.PointIdsList | models.FilterSelector) -> Any:
        kept = self._of(name)
        if isinstance(chosen, models.FilterSelector):
            _check_indexed(kept, chosen.filter)
        self._local.delete(name, chosen)
        return self._done()

    def retrieve(self, name: str, request: models.PointRequest) -> Any:
        self._of(name)
        records = self._local.retrieve(
            name,
            request.ids,
            with_payload=request.with_payload if request.with_payload is not None else True,
            with_vectors=request.with_vector or False,
        )
        return [record.model_dump(mode="json") for record in records]

    def count(self, name: str, request: models.CountRequest) -> Any:
        _check_indexed(self._of(name), request.filter)
        if self.strict.enabled and self.strict.search_allow_exact is False and request.exact:
            raise FakeRefusal(400, "Bad request: Exact search disabled!. Help: Set exact=false.")
        return {"count": self._local.count(name, request.filter, exact=True).count}

    def facet(self, name: str, request: models.FacetRequest) -> Any:
        kept = self._of(name)
        if request.key not in kept.indexed:
            raise FakeRefusal(
                400,
                f'Bad request: Index required but not found for "{request.key}". Help: Create an index for this key.',
            )
        answer = self._local.facet(
            name, request.key, request.filter, limit=request.limit or 10, exact=True
        )
        return answer.model_dump(mode="json")

    def scroll(self, name: str, request: models.ScrollRequest) -> Any:
        _check_indexed(self._of(name), request.filter)
        self._check("limit", request.limit or 10, self.strict.max_query_limit)
        records, following = self._local.scroll(
            name,
            request.filter,
            limit=request.limit or 10,
            offset=request.offset,
            with_payload=request.with_payload if request.with_payload is not None else True,
            with_vectors=request.with_vector or False,
        )
        points = [record.model_dump(mode="json") for record in records]
        return {"points": points, "next_page_offset": following}

    def query(self, name: str, request: models.QueryRequest) -> Any:
        kept = self._of(name)
        _check_indexed(kept, request.filter)
        query: Any = request.query
        if isinstance(query, models.NearestQuery):
            query = query.nearest
        if len(query) != kept.dims:
            raise FakeRefusal(
                400,
                f"Wrong input: Vector dimension error: expected dim: {kept.dims}, got {len(query)}",
            )
        among, limit = _only_ids(request.filter), request.limit or 10
        self._check("limit", limit, self.strict.max_query_limit)
        self._check("condition size", len(among or ()), self.strict.condition_max_size)
        if request.params is not None:
            self._check("hnsw_ef", request.params.hnsw_ef or 0, self.strict.search_max_hnsw_ef)
        answer = self._local.query_points(
            name,
            query=query,
            query_filter=request.filter if among is None else None,
            limit=limit if among is None else max(1, self._local.count(name).count),
            with_payload=request.with_payload if request.with_payload is not None else False,
            with_vectors=request.with_vector or False,
        )
        found = [p for p in answer.points if among is None or str(p.id) in among][:limit]
        return {"points": [point.model_dump(mode="json") for point in found]}

    def _check(self, what: str, given: int, maximum: int | None) -> None:
        if self.strict.enabled and maximum is not None and given > maximum:
            raise FakeRefusal(
                400,
                f"Forbidden: {what} exceeded {given} > {maximum}. Help: Reduce the {what} parameter.",
            )

    def _of(self, name: str) -> _CollectionSettings:
        if name not in self._kept:
            raise FakeRefusal(404, f"Not found: Collection `{name}` doesn't exist!")
        return self._kept[name]

    def _done(self) -> Any:
        self._operations += 1
        return {"operation_id": self._operations, "status": "completed"}


def _only_ids(chosen: models.Filter | None) -> set[str] | None:
    """The ids of a filter that is nothing else: local mode compares each point with each of them."""
    conditions = chosen.must if chosen is not None else None
    if not isinstance(conditions, list) or len(conditions) != 1:
        return None
    only = conditions[0]
    return {str(one) for one in only.has_id} if isinstance(only, models.HasIdCondition) else None


def _check_indexed(kept: _CollectionSettings, chosen: models.Filter | None) -> None:
    for key in _keys(chosen):
        if key not in kept.indexed:
            raise FakeRefusal(
                400,
                f'Bad request: Index required but not found for "{key}" of one of the following types: '
                "[keyword, uuid]. Help: Create an index for this key or use a different filter.",
            )


def _keys(chosen: models.Filter | None) -> Iterator[str]:
    if chosen is None:
        return
    for part in (chosen.must, chosen.should, chosen.must_not):
        for condition in part if isinstance(part, list) else [part] if part else []:
            if isinstance(condition, models.FieldCondition):
                yield condition.key
            elif isinstance(condition, models.Filter):
                yield from _keys(condition)


def _jsonable(value: Any) -> Any:
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value
