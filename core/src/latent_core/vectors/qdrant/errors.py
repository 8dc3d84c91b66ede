"""Maps errors of ``qdrant-client`` to ours, and holds the limits of Qdrant's strict mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Self, TypeVar

import httpx
import orjson
from qdrant_client import models
from qdrant_client.common.client_exceptions import QdrantException, ResourceExhaustedResponse
from qdrant_client.http.exceptions import (
    ApiException,
    ResponseHandlingException,
    UnexpectedResponse,
)

from latent_core.domain.errors import (
    Conflict,
    Invalid,
    LatentError,
    NotFound,
    ServiceUnreachable,
    StoreFull,
    TimedOut,
    Unavailable,
    UpstreamError,
    UpstreamOverload,
)
from latent_core.domain.service_health import ServiceHealth
from latent_core.telemetry.redaction import redacted

_SERVER_MESSAGE: Final = 300
_FULL: Final = ("no space left", "disk space", "out of disk")
_KEY_REFUSED: Final = (401, 403)


class NotConnected(ServiceUnreachable):
    """No connection to the server is possible."""


@contextmanager
def mapped_errors(collection: str, seconds: float, health: ServiceHealth) -> Iterator[None]:
    """Raise our errors for those of one call on ``collection``, with their cause."""
    try:
        yield
        health.succeeded()
    except (TimeoutError, httpx.TimeoutException) as exc:
        raise _late(seconds, health) from exc
    except UnexpectedResponse as exc:
        raise _refused(exc.status_code or 0, _message(exc.content), collection) from exc
    except ResponseHandlingException as exc:
        raise _broken(exc.source, seconds, health) from exc
    except ResourceExhaustedResponse as exc:
        raise UpstreamOverload(
            f"Qdrant limits requests: {exc}", retry_after=exc.retry_after_s
        ) from exc
    except (ApiException, QdrantException) as exc:
        raise Unavailable(f"Qdrant failed: {exc}") from exc


def _late(seconds: float, health: ServiceHealth) -> LatentError:
    return health.timeout(f"Qdrant did not answer within {seconds:g} s")


def _broken(source: Exception, seconds: float, health: ServiceHealth) -> LatentError:
    connecting = isinstance(source, httpx.ConnectError | httpx.ConnectTimeout)
    if isinstance(source, httpx.TimeoutException) and not connecting:
        return _late(seconds, health)
    # The cause names hosts, which users must not see.
    health.unreachable(str(source) or type(source).__name__)
    if isinstance(source, httpx.TransportError) and not connecting:
        return UpstreamError("Qdrant closed the connection; see the log")
    return NotConnected("Qdrant is not available; see the log")


def _refused(status: int, message: str, collection: str) -> LatentError:
    details = {"collection": collection} if collection else {}
    if any(sign in message.lower() for sign in _FULL):
        return StoreFull(
            "Qdrant has no space left on its disk: free space there and try again", service="qdrant"
        )
    if status == 404:
        return NotFound(f"vector collection {collection} does not exist", **details)
    if status == 409:
        return Conflict(f"vector collection {collection} exists already", **details)
    if status in _KEY_REFUSED:
        return ServiceUnreachable("Qdrant refuses the key: check LLC_QDRANT_API_KEY")
    if status in (400, 413, 422):
        return Invalid(f"Qdrant refuses the request ({status}): {message}", **details)
    if status == 408:
        return TimedOut(f"Qdrant gave up waiting: {message}")
    return UpstreamError(f"Qdrant failed ({status}): {message}", **details)


def _message(content: bytes) -> str:
    """The server's error text, in one line."""
    try:
        message = orjson.loads(content)["status"]["error"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        message = content.decode("utf-8", "replace")
    return redacted(" ".join(str(message).split()))[:_SERVER_MESSAGE]


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StrictModeLimits:
    """Limits of one collection; None: no limit. Times in seconds."""

    query: int | None = None
    hnsw_ef: int | None = None
    oversampling: float | None = None
    upsert: int | None = None
    condition: int | None = None
    """Ids per filter."""
    timeout: int | None = None
    exact: bool = True
    """Whether exact counts are allowed."""

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
            exact=strict.search_allow_exact is not False,
        )

    def parts(self, ids: Sequence[T]) -> Iterator[Sequence[T]]:
        """``ids`` in parts that one filter may hold."""
        size = max(1, self.condition or len(ids))
        for start in range(0, len(ids), size):
            yield ids[start : start + size]


def capped(requested: int, limit: int | None) -> int:
    """``requested``, at most ``limit``."""
    return requested if limit is None else max(1, min(requested, limit))
