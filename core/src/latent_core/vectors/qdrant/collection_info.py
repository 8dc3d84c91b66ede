"""What Qdrant says about a collection, as far as it is used here, and the limits of its strict mode.

``CollectionInfo`` of ``qdrant-client`` refuses answers with fields or values that it does not know, so a newer server
would make every collection unreadable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

from pydantic import AliasPath, BaseModel, ConfigDict, Field
from qdrant_client import AsyncQdrantClient

T = TypeVar("T")

_CONFIG: Final = ("result", "config")
_PARAMS: Final = (*_CONFIG, "params")


class CollectionInfo(BaseModel):
    """The answer to ``GET /collections/{name}`` of Qdrant 1.16 or newer."""

    model_config = ConfigDict(frozen=True)

    dims: int | None = Field(None, validation_alias=AliasPath(*_PARAMS, "vectors", "size"))
    """None for a collection with named vectors, which is not ours."""
    replicas: int = Field(1, validation_alias=AliasPath(*_PARAMS, "replication_factor"))
    acknowledgements: int = Field(
        1, validation_alias=AliasPath(*_PARAMS, "write_consistency_factor")
    )
    quantization: dict[str, Any] | None = Field(
        None, validation_alias=AliasPath(*_CONFIG, "quantization_config")
    )
    strict_mode: dict[str, Any] | None = Field(
        None, validation_alias=AliasPath(*_CONFIG, "strict_mode_config")
    )
    indexes: dict[str, Any] = Field(validation_alias=AliasPath("result", "payload_schema"))
    points: int | None = Field(None, validation_alias=AliasPath("result", "points_count"))


async def read_collection(client: AsyncQdrantClient, name: str) -> CollectionInfo:
    return await client.http.client.request(
        type_=CollectionInfo,
        method="GET",
        url="/collections/{collection_name}",
        path_params={"collection_name": name},
    )


@dataclass(frozen=True, slots=True)
class StrictModeLimits:
    """Limits of one collection; None: no limit. Times in seconds."""

    query: int | None = None
    hnsw_ef: int | None = None
    oversampling: float | None = None
    upsert: int | None = None
    write: int | None = None
    """Points that one request may write or delete."""
    retrieve: int | None = None
    condition: int | None = None
    """Ids per filter."""
    timeout: int | None = None
    exact: bool = True
    """Whether exact counts are allowed."""

    @classmethod
    def of(cls, config: Mapping[str, Any] | None) -> Self:
        """Of ``strict_mode_config``. A request for more points than a minute allows is always refused."""
        if config is None or not config.get("enabled"):
            return cls()
        retrieve = config.get("read_rate_limit")
        written = (config.get("upsert_max_batchsize"), config.get("write_rate_limit"), retrieve)
        return cls(
            query=config.get("max_query_limit"),
            hnsw_ef=config.get("search_max_hnsw_ef"),
            oversampling=config.get("search_max_oversampling"),
            upsert=min((limit for limit in written if limit is not None), default=None),
            write=config.get("write_rate_limit"),
            retrieve=retrieve,
            condition=config.get("condition_max_size"),
            timeout=config.get("max_timeout"),
            exact=config.get("search_allow_exact") is not False,
        )

    def parts(self, ids: Sequence[T]) -> Iterator[Sequence[T]]:
        """``ids`` in parts that one filter may hold."""
        size = max(1, self.condition or len(ids))
        for start in range(0, len(ids), size):
            yield ids[start : start + size]


def capped(requested: int, limit: int | None) -> int:
    """``requested``, at most ``limit``."""
    return requested if limit is None else max(1, min(requested, limit))
