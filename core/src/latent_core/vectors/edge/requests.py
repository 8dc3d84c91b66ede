"""Executes one request on the store: bytes in, bytes out. The layout of bodies is defined here and in ``index``."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

import numpy as np

from latent_core.vectors.edge.collections import Store
from latent_core.vectors.edge.points import PointBatch
from latent_core.vectors.edge.protocol import Fault, RequestRefused, VectorOp, VectorRequest, cut

Answer = tuple[dict[str, Any], bytes]


def handle(store: Store, request: VectorRequest) -> Answer:
    """Arguments and body of the reply. Raises ``RequestRefused`` with the collection's name."""
    try:
        return _HANDLERS[request.op](store, request)
    except RequestRefused as exc:
        subject = f"vector collection {request.collection} " if request.collection else ""
        raise RequestRefused(exc.fault, subject + exc.message) from exc


def _collections(store: Store, _request: VectorRequest) -> Answer:
    return {"names": store.names()}, b""


def _create(store: Store, request: VectorRequest) -> Answer:
    store.create(request.collection, request.args["dims"])
    return {}, b""


def _drop(store: Store, request: VectorRequest) -> Answer:
    store.drop(request.collection)
    return {}, b""


def _upsert(store: Store, request: VectorRequest) -> Answer:
    """Body: a ``PointBatch``. Answer: the log that the caller syncs."""
    collection = store.get(request.collection)
    batch = PointBatch.decode(request.body, request.args["n"], request.args["dims"])
    if len(batch) and batch.vectors.shape[1] != collection.dims:
        given = batch.vectors.shape[1]
        raise RequestRefused(
            Fault.INVALID, f"has {collection.dims} dimensions, the vectors have {given}"
        )
    store.require_space()
    stored = collection.upsert(batch)
    store.after_write(request.collection)
    if (missing := len(set(batch.ids)) - stored) > 0:
        raise RequestRefused(Fault.UNAVAILABLE, f"did not keep {missing} points: try again")
    return {"log": collection.log}, b""


def _search(store: Store, request: VectorRequest) -> Answer:
    """Body: the query (float32), then the allowed ids. Answer: n chunk_nos (int64), n scores (float32)."""
    width = 4 * request.args["dims"]
    vector = np.frombuffer(request.body[:width], np.float32)
    allowed = cut(request.body[width:]) if request.args["filtered"] else None
    chunk_nos, scores = store.get(request.collection).search(vector, request.args["k"], allowed)
    return {"n": len(chunk_nos)}, chunk_nos.tobytes() + scores.tobytes()


def _vectors(store: Store, request: VectorRequest) -> Answer:
    """Body: ids. Answer: n ids, n vectors (float32) that exist."""
    found = store.get(request.collection).vectors(cut(request.body))
    ids = b"".join(point.bytes for point, _ in found)
    return {"n": len(found)}, ids + b"".join(vector.tobytes() for _, vector in found)


def _delete(store: Store, request: VectorRequest) -> Answer:
    args = request.args
    collection = store.get(request.collection)
    store.require_space(part=4)
    before, left = collection.delete(request.body, args["below"], args["only"], args["limit"])
    store.after_write(request.collection)
    return {"before": before, "left": left, "log": collection.log}, b""


def _delete_points(store: Store, request: VectorRequest) -> Answer:
    """Body: ids. Answer: how many of them existed, and the log that the caller syncs."""
    collection = store.get(request.collection)
    store.require_space(part=4)
    removed = collection.delete_points(cut(request.body))
    store.after_write(request.collection)
    return {"removed": removed, "log": collection.log}, b""


def _count(store: Store, request: VectorRequest) -> Answer:
    doc_id = request.body or None  # of a document that is about to be deleted, one of many perhaps
    collection = store.get(request.collection, briefly=doc_id is None)
    return {"count": collection.count_of(doc_id, request.args["generation"])}, b""


def _scroll(store: Store, request: VectorRequest) -> Answer:
    """Answer: n ids, n document ids, n generations, n chunk_nos (int64)."""
    found = store.get(request.collection).scroll(request.body or None, request.args["limit"])
    ids = b"".join(point.bytes for point, _ in found)
    docs = b"".join(UUID(payload["doc_id"]).bytes for _, payload in found)
    numbers = [payload[key] for key in ("generation", "chunk_no") for _, payload in found]
    return {"n": len(found)}, ids + docs + array("q", numbers).tobytes()


_HANDLERS: Final[dict[VectorOp, Callable[[Store, VectorRequest], Answer]]] = {
    VectorOp.COLLECTIONS: _collections,
    VectorOp.CREATE: _create,
    VectorOp.DROP: _drop,
    VectorOp.UPSERT: _upsert,
    VectorOp.SEARCH: _search,
    VectorOp.VECTORS: _vectors,
    VectorOp.DELETE: _delete,
    VectorOp.DELETE_POINTS: _delete_points,
    VectorOp.COUNT: _count,
    VectorOp.SCROLL: _scroll,
}
