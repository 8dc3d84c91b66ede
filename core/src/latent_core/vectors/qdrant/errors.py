"""Maps errors of ``qdrant-client``, and what a server answers instead of a result, to our errors.

The texts are those of Qdrant 1.16 to 1.19. A refusal that does not concern the request itself, such as of a full or
restarting server, does not count as an attempt of the job that met it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import httpx
import orjson
from pydantic import ValidationError
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
    Misconfigured,
    NotFound,
    OutOfSpace,
    ServiceUnreachable,
    StoreFull,
    Unavailable,
    UpstreamError,
    UpstreamOverload,
)
from latent_core.domain.service_health import ServiceHealth
from latent_core.telemetry.redaction import redacted

RETRY_AFTER_SECONDS: Final = 5.0
"""When a refusal by a rate limit does not say how long to wait."""
_SERVER_MESSAGE: Final = 300
_FULL: Final = (
    "no space left",
    "disk space",
    "out of disk",
    "disk quota exceeded",
    "os error 28",
    "os error 122",
)
# Of the node, also by strict mode's ``max_resident_memory_percent`` with status 400.
_QUOTA: Final = re.compile(r"(resident memory|disk) usage is at \d+%")
_COLLECTION_FULL: Final = re.compile(r"max (points count|\w+ storage size) limit of .+ reached")
_NOT_LOADED: Final = re.compile(
    r"failed to (?:update points|update vectors|update payloads|scroll|scroll by id|get info|search|count|retrieve"
    r"|query|facet), (.*)",
    re.IGNORECASE,
)
_CLUSTER: Final = (
    "active replica",
    "consistency of this update is not guaranteed",
    "consensus operation",
    "leader is not established",
    "no leader could be selected",
    "tonic status error",
    "transport error",
    "pre-condition failure",
)
_NOT_FOUND: Final = "Not found:"
_TIMED_OUT: Final = ("timeout error", "timed out")
_NODE: Final = re.compile(r"https?://[^\s\"',)]+|\b\d{1,3}(?:\.\d{1,3}){3}:\d+")


class NotConnected(ServiceUnreachable):
    """No connection to the server is possible."""


class NotReady(UpstreamError):
    """The server or its cluster cannot answer any such request now."""

    counts_as_attempt = False


class NotReadable(NotReady):
    """No replica of a collection can be read yet, as while another process creates it."""


@contextmanager
def mapped_errors(collection: str, seconds: float, health: ServiceHealth) -> Iterator[None]:
    """Raise our errors for those of one call on ``collection``, with their cause."""
    try:
        yield
        health.succeeded()
    except (TimeoutError, httpx.TimeoutException) as exc:
        raise _late(seconds, health) from exc
    except UnexpectedResponse as exc:
        raise _refused(exc.status_code or 0, _message(exc.content), collection, health) from exc
    except ResponseHandlingException as exc:
        raise _broken(exc.source, seconds, health) from exc
    except ResourceExhaustedResponse as exc:
        raise _limited(str(exc), collection, exc.retry_after_s) from exc
    except QdrantException as exc:  # a Retry-After that is no number
        raise _limited(str(exc), collection) from exc
    except (json.JSONDecodeError, UnicodeDecodeError) as exc:
        raise _elsewhere(200) from exc
    except ApiException as exc:
        raise Unavailable(f"Qdrant failed: {exc}") from exc


def is_not_found(exc: UnexpectedResponse) -> bool:
    """Whether the server itself says that a collection does not exist."""
    return exc.status_code == 404 and _message(exc.content).startswith(_NOT_FOUND)


def _late(seconds: float, health: ServiceHealth) -> LatentError:
    return health.timeout(f"Qdrant did not answer within {seconds:g} s")


def _broken(source: Exception, seconds: float, health: ServiceHealth) -> LatentError:
    if isinstance(source, ValidationError):
        found = source.errors()[0]
        place = ".".join(str(part) for part in found["loc"])
        return UpstreamError(
            f"the answer of Qdrant cannot be read ({place}: {found['msg']}); is its version newer than this program?"
        )
    connecting = isinstance(source, httpx.ConnectError | httpx.ConnectTimeout)
    if isinstance(source, httpx.TimeoutException) and not connecting:
        return _late(seconds, health)
    # The cause names hosts, which users must not see.
    cause = str(source) or type(source).__name__
    if isinstance(source, httpx.TransportError) and not connecting:
        return health.closed("Qdrant closed the connection; see the log", cause)
    health.unreachable(cause)
    return NotConnected("Qdrant is not available; see the log")


def _refused(status: int, message: str, collection: str, health: ServiceHealth) -> LatentError:
    details = {"collection": collection} if collection else {}
    full = _full(status, message, collection)
    if full is not None:
        return full
    if status >= 500:
        return _failed(status, message, collection, health)
    match status:
        case 401:
            return ServiceUnreachable("Qdrant refuses the key: check LLC_QDRANT_API_KEY")
        case 403:
            return ServiceUnreachable(
                f"Qdrant does not permit this with the key in LLC_QDRANT_API_KEY: {message}"
            )
        case 404 if message.startswith(_NOT_FOUND):
            return NotFound(f"vector collection {collection} does not exist", **details)
        case 408:
            return health.timeout(f"Qdrant gave up waiting: {message}")
        case 409:
            return Conflict(f"vector collection {collection} exists already", **details)
        case 429:
            return _limited(message, collection)
        case 413:
            return Invalid(
                "a request is too large for the proxy before Qdrant (413): allow 32 MB there"
            )
    if status < 400 or status in (404, 405):
        return _elsewhere(status)
    return Invalid(f"Qdrant refuses the request ({status}): {message}", **details)


def _elsewhere(status: int) -> LatentError:
    return ServiceUnreachable(
        f"it is not Qdrant that answers at LLC_QDRANT_URL ({status}): check the address"
    )


def _full(status: int, message: str, collection: str) -> LatentError | None:
    text = message.lower()
    if any(sign in text for sign in _FULL):
        return StoreFull(
            "Qdrant has no space left on its disk: free space there and try again", service="qdrant"
        )
    if status == 507 or _QUOTA.search(text):
        return StoreFull(f"Qdrant takes no more vectors: {message}", service="qdrant")
    if _COLLECTION_FULL.search(text):
        return OutOfSpace(
            f"vector collection {collection} is full: {message} Raise this limit in its strict mode",
            collection=collection,
        )
    if "max collections limit" in text:
        return Misconfigured(
            f"Qdrant takes no more collections: {message}. Raise storage.max_collections of Qdrant, or lower "
            "LLC_QDRANT_COLLECTIONS"
        )
    return None


def _failed(status: int, message: str, collection: str, health: ServiceHealth) -> LatentError:
    """The error for a status of 500 or more."""
    text = message.lower()
    shard = "shard temporarily unavailable" in text
    if status in (502, 503) and not shard:
        return NotConnected(f"a proxy answers instead of Qdrant ({status}): is Qdrant running?")
    not_loaded = _NOT_LOADED.search(message)
    if not_loaded:
        return NotReady(
            f"Qdrant has not loaded its data: {not_loaded[1]}. Remove the cause, then restart it, without "
            "storage.recovery_mode"
        )
    if "0 of 0 read operations" in text:
        return NotReadable(
            f"no replica of vector collection {collection} can be read yet", collection=collection
        )
    if shard:
        return NotReady("Qdrant restores a shard from a snapshot: try again later")
    if any(sign in text for sign in _CLUSTER):
        return NotReady(
            "too few nodes of the Qdrant cluster answer: see the log of Qdrant, and restart the nodes that are down"
        )
    if status == 504 or any(sign in text for sign in _TIMED_OUT):
        return health.timeout(f"Qdrant gave up waiting ({status})")
    details = {"collection": collection} if collection else {}
    return UpstreamError(f"Qdrant failed ({status}): {message}", **details)


def _limited(message: str, collection: str, retry_after: float | None = None) -> LatentError:
    if "split your request" in message:
        return Misconfigured(
            f"a rate limit of vector collection {collection} is too low for one request ({message}): raise "
            "read_rate_limit and write_rate_limit in its strict mode",
            collection=collection,
        )
    wait = RETRY_AFTER_SECONDS if retry_after is None else retry_after
    return UpstreamOverload(f"Qdrant limits requests: {message}", retry_after=wait)


def _message(content: bytes) -> str:
    """The server's error text, in one line and without the addresses of its nodes."""
    try:
        message = orjson.loads(content)["status"]["error"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        message = content.decode("utf-8", "replace")
    return _NODE.sub("…", redacted(" ".join(str(message).split())))[:_SERVER_MESSAGE]
