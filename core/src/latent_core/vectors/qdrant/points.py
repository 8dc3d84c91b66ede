"""Points, filters and hits: between our types and those of ``qdrant-client``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final
from uuid import UUID

import numpy as np
from qdrant_client import models

from latent_core.domain.errors import Unavailable
from latent_core.domain.ids import PointId
from latent_core.vectors.port import StoredPoint, VectorHits
from latent_core.vectors.qdrant.tenants import tenant_conditions

_FLOATS_PER_REQUEST: Final = 1_000_000
"""About 12 MB of JSON; the server's limit is 32 MB per request."""


def completed(result: models.UpdateResult, collection: str) -> None:
    """``wait`` may end early: then the server has only acknowledged the write."""
    if result.status != models.UpdateStatus.COMPLETED:
        raise Unavailable(
            f"Qdrant did not complete a write to {collection} in time: its status is '{result.status}'",
            collection=collection,
        )


def batches(count: int, dims: int, *, page_limit: int) -> Iterator[slice]:
    """Slices of a bounded size; one even without points, so that the collection is checked."""
    size = max(1, min(page_limit, _FLOATS_PER_REQUEST // max(1, dims)))
    for start in range(0, max(1, count), size):
        yield slice(start, start + size)


def filter_of(
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
        conditions.append(models.HasIdCondition(has_id=strings(ids)))
    return models.Filter(must=conditions) if conditions else None


def strings(ids: Sequence[UUID]) -> list[models.ExtendedPointId]:
    return [str(one) for one in ids]


def id_of(record: models.Record) -> PointId:
    return PointId(UUID(str(record.id)))


def in_order(hits: Sequence[models.ScoredPoint]) -> list[models.ScoredPoint]:
    # In single precision, as the server answers: values that round to the same are equal.
    return sorted(hits, key=lambda hit: (-np.float32(hit.score), _chunk_no(hit)))


def _chunk_no(hit: models.ScoredPoint) -> int:
    return int((hit.payload or {})["chunk_no"])


def vector_hits(found: Sequence[models.ScoredPoint], k: int) -> VectorHits:
    kept = found[:k]
    return VectorHits(
        np.array([_chunk_no(hit) for hit in kept], dtype=np.int64),
        np.array([hit.score for hit in kept], dtype=np.float32),
    )


def stored_point(record: models.Record) -> StoredPoint:
    payload = record.payload or {}
    return StoredPoint(
        id_of(record), UUID(payload["doc_id"]), int(payload["generation"]), int(payload["chunk_no"])
    )
