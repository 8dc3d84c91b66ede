"""The gRPC side of the stand-in for a Qdrant server: the calls we use, over the same engine as its REST side."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

import grpc
from qdrant_client import grpc as wire, models
from qdrant_client.conversions.conversion import GrpcToRest, RestToGrpc

from tests.support.servers.qdrant_engine import Engine, RefusedError

VERSION: Final = "1.19.0"
_CODES: Final = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    404: grpc.StatusCode.NOT_FOUND,
    409: grpc.StatusCode.ALREADY_EXISTS,
    422: grpc.StatusCode.INVALID_ARGUMENT,
}
_MOST_BYTES: Final = 64 * 1024 * 1024

Call = Callable[[Any], Any]


@contextmanager
def grpc_side(engine: Engine) -> Iterator[int]:
    """Serves on 127.0.0.1; the port."""
    server = grpc.server(
        ThreadPoolExecutor(8), options=[("grpc.max_receive_message_length", _MOST_BYTES)]
    )
    adding: Any = wire
    service = _Service(engine, threading.Lock())
    adding.add_PointsServicer_to_server(service, server)
    adding.add_CollectionsServicer_to_server(_Collections(service), server)
    adding.add_QdrantServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(None).wait()


class _Service:
    """Methods are named as the protocol names them; what it has and this has not is refused as unknown."""

    def __init__(self, engine: Engine, lock: threading.Lock) -> None:
        self.engine = engine
        self._lock = lock

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._unknown

    def _unknown(self, _request: Any, context: grpc.ServicerContext) -> Any:
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "the stand-in does not know this call")

    def called(self, context: grpc.ServicerContext, call: Callable[[], Any]) -> Any:
        try:
            with self._lock:
                return call()
        except RefusedError as exc:
            context.abort(_CODES.get(exc.status, grpc.StatusCode.INTERNAL), str(exc))

    def HealthCheck(self, _request: Any, _context: grpc.ServicerContext) -> Any:  # noqa: N802
        return wire.HealthCheckReply(title="qdrant - vector search engine", version=VERSION)

    def Upsert(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        points = [GrpcToRest.convert_point_struct(point) for point in request.points]
        given = models.PointsList(points=points)
        return self._update(context, lambda: self.engine.upsert(request.collection_name, given))

    def Delete(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        chosen: Any = GrpcToRest.convert_points_selector(request.points)
        return self._update(context, lambda: self.engine.delete(request.collection_name, chosen))

    def CreateFieldIndex(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        names = {
            wire.FieldType.FieldTypeUuid: "uuid",
            wire.FieldType.FieldTypeInteger: "integer",
            wire.FieldType.FieldTypeKeyword: "keyword",
        }
        schema = models.PayloadSchemaType(names[request.field_type])
        wanted = models.CreateFieldIndex(field_name=request.field_name, field_schema=schema)
        return self._update(context, lambda: self.engine.index(request.collection_name, wanted))

    def _update(self, context: grpc.ServicerContext, call: Callable[[], Any]) -> Any:
        result = models.UpdateResult.model_validate(self.called(context, call))
        return wire.PointsOperationResponse(
            result=RestToGrpc.convert_update_result(result), time=0.001
        )

    def Get(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        wanted = models.PointRequest(
            ids=[GrpcToRest.convert_point_id(one) for one in request.ids],
            with_payload=GrpcToRest.convert_with_payload_interface(request.with_payload),
            with_vector=GrpcToRest.convert_with_vectors_selector(request.with_vectors),
        )
        found = self.called(context, lambda: self.engine.retrieve(request.collection_name, wanted))
        return wire.GetResponse(result=_records(found), time=0.001)

    def Scroll(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        wanted = models.ScrollRequest(
            offset=GrpcToRest.convert_point_id(request.offset)
            if request.HasField("offset")
            else None,
            limit=request.limit,
            with_payload=True,
            with_vector=False,
        )
        found = self.called(context, lambda: self.engine.scroll(request.collection_name, wanted))
        answer = wire.ScrollResponse(result=_records(found["points"]), time=0.001)
        if found["next_page_offset"] is not None:
            following = RestToGrpc.convert_extended_point_id(found["next_page_offset"])
            answer.next_page_offset.CopyFrom(following)
        return answer

    def Count(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        wanted = models.CountRequest(filter=_filter(request), exact=request.exact)
        found = self.called(context, lambda: self.engine.count(request.collection_name, wanted))
        return wire.CountResponse(result=wire.CountResult(count=found["count"]), time=0.001)

    def Query(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        query: Any = GrpcToRest.convert_query(request.query)
        wanted = models.QueryRequest(
            query=query,
            filter=_filter(request),
            limit=request.limit,
            with_payload=GrpcToRest.convert_with_payload_interface(request.with_payload),
            with_vector=False,
        )
        found = self.called(context, lambda: self.engine.query(request.collection_name, wanted))
        points = [
            RestToGrpc.convert_scored_point(models.ScoredPoint.model_validate(point))
            for point in found["points"]
        ]
        return wire.QueryResponse(result=points, time=0.001)


class _Collections:
    """The other service with methods of the same names."""

    def __init__(self, service: _Service) -> None:
        self._service = service

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._service, f"no_{name}")

    def Get(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        engine = self._service.engine
        told = self._service.called(context, lambda: engine.info(request.collection_name))
        info = models.CollectionInfo.model_validate(told)
        return wire.GetCollectionInfoResponse(
            result=RestToGrpc.convert_collection_info(info), time=0.001
        )

    def List(self, _request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        found = self._service.called(context, self._service.engine.names)
        names = [wire.CollectionDescription(name=c["name"]) for c in found["collections"]]
        return wire.ListCollectionsResponse(collections=names, time=0.001)

    def Create(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        quantized = request.HasField("quantization_config")
        wanted = models.CreateCollection(
            vectors=GrpcToRest.convert_vectors_config(request.vectors_config),
            shard_number=request.shard_number,
            replication_factor=request.replication_factor,
            write_consistency_factor=request.write_consistency_factor,
            on_disk_payload=request.on_disk_payload,
            hnsw_config=GrpcToRest.convert_hnsw_config_diff(request.hnsw_config),
            quantization_config=GrpcToRest.convert_quantization_config(request.quantization_config)
            if quantized
            else None,
        )
        engine = self._service.engine
        return self._done(context, lambda: engine.create(request.collection_name, wanted))

    def Update(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        change = GrpcToRest.convert_quantization_config_diff(request.quantization_config)
        wanted = models.UpdateCollection(quantization_config=change)
        engine = self._service.engine
        return self._done(context, lambda: engine.update(request.collection_name, wanted))

    def Delete(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        return self._done(context, lambda: self._service.engine.drop(request.collection_name))

    def _done(self, context: grpc.ServicerContext, call: Callable[[], Any]) -> Any:
        return wire.CollectionOperationResponse(
            result=bool(self._service.called(context, call)), time=0.001
        )


def _filter(request: Any) -> models.Filter | None:
    return GrpcToRest.convert_filter(request.filter) if request.HasField("filter") else None


def _records(found: list[Any]) -> list[Any]:
    records = (
        models.Record.model_validate(one | {"payload": one["payload"] or {}}) for one in found
    )
    return [RestToGrpc.convert_record(record) for record in records]
