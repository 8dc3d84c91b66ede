"""What a server's strict mode allows: requests are made to fit, instead of being refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

from qdrant_client import models

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StrictModeLimits:
    """Of one collection; None is no limit. Seconds."""

    query: int | None = None
    hnsw_ef: int | None = None
    oversampling: float | None = None
    upsert: int | None = None
    condition: int | None = None
    """Ids of one filter."""
    timeout: int | None = None

    @classmethod
    def of(cls, config: models.CollectionConfig) -> Self:
        strict = config.strict_mode_config
        if strict is None or not strict.enabled:
            return cls()
        return cls(
            query=strict.max_query_limit,
            hnsw_ef=strict.search_max_hnsw_ef,
            oversampling=strict.search_max_oversampling,
            upsert=strict.upsert_max_batchsize,
            condition=strict.condition_max_size,
            timeout=strict.max_timeout,
        )

    def parts(self, ids: Sequence[T]) -> Iterator[Sequence[T]]:
        """``ids``, so many as one filter may name."""
        size = max(1, self.condition or len(ids))
        for start in range(0, len(ids), size):
            yield ids[start : start + size]


def capped(requested: int, limit: int | None) -> int:
    """``requested``, or what is allowed of it."""
    return requested if limit is None else max(1, min(requested, limit))
