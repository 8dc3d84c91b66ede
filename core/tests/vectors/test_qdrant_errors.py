"""What the answers of a Qdrant server that are no success mean, by the texts of Qdrant 1.16 to 1.19."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest
from pydantic import BaseModel, ValidationError
from qdrant_client.common.client_exceptions import QdrantException, ResourceExhaustedResponse
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from latent_core.domain.errors import (
    Conflict,
    Invalid,
    LatentError,
    Misconfigured,
    NotFound,
    OutOfSpace,
    ServiceUnreachable,
    StoreFull,
    UpstreamError,
    UpstreamOverload,
    UpstreamTimeout,
)
from latent_core.domain.service_health import ServiceHealth
from latent_core.vectors.qdrant.collection_info import CollectionInfo, StrictModeLimits
from latent_core.vectors.qdrant.errors import (
    RETRY_AFTER_SECONDS,
    NotConnected,
    NotReadable,
    NotReady,
    mapped_errors,
)
from tests.support.servers.qdrant_faults import REFUSALS, QdrantFault

NAME = "c_art_text_1"
COUNTING = (UpstreamError, OutOfSpace, Misconfigured, NotFound, Conflict, Invalid)
DEAD_NODE = (
    "Service internal error: 2 out of 3 shards failed to apply operation. First error captured: Service internal error: "
    "Tonic status error: code: 'The service is currently unavailable', message: \"tcp connect error\", source: "
    'tonic::transport::Error(Transport, ConnectError(ConnectError("tcp connect error", 10.0.0.3:6335, Os { code: 111, '
    'kind: ConnectionRefused, message: "Connection refused" })))'
)
TIMED_OUT_READ = "Service internal error: 1 of 1 read operations failed:\n  Timeout error: Operation 'Search' timed out after 2s"
NOT_DEACTIVATED = (
    "Service internal error: Some replica of shard 0 failed to apply operation and deactivation timed out after 30s. "
    "Consistency of this update is not guaranteed. Please retry. Failed peer: 17, error: Timeout error"
)
MEMORY_OF_A_COLLECTION = (
    "Bad request: Resident memory usage is at 91% of total memory, exceeding the configured limit of 90%. Help: Reduce "
    "memory usage (e.g. delete points or drop collections), or raise `max_resident_memory_percent` in the strict mode "
    "config of this collection."
)


def shaped(params: dict[str, Any], quantization: dict[str, Any] | None = None, **more: Any) -> str:
    """The answer to ``GET /collections/{name}``."""
    config = {
        "params": {
            "vectors": {"size": 4, "distance": "Cosine"},
            "shard_number": 1,
            "replication_factor": 2,
            "write_consistency_factor": 1,
        }
        | params,
        "hnsw_config": {"m": 32, "ef_construct": 256, "full_scan_threshold": 10000},
        "optimizer_config": {"deleted_threshold": 0.2, "flush_interval_sec": 5},
        "wal_config": {"wal_capacity_mb": 32, "wal_segments_ahead": 0},
        "quantization_config": quantization,
        "strict_mode_config": {
            "enabled": True,
            "max_query_limit": 100,
            "search_allow_exact": False,
        },
    }
    result = {
        "status": "green",
        "optimizer_status": "ok",
        "indexed_vectors_count": 0,
        "points_count": 7,
        "segments_count": 2,
        "config": config,
        "payload_schema": {"doc_id": {"data_type": "uuid", "points": 7}},
    }
    return json.dumps({"result": result | more, "status": "ok", "time": 0.0})


SHAPES = {
    "1.16": shaped({"on_disk_payload": True}),
    "1.18": shaped(
        {"on_disk_payload": True},
        {"scalar": {"type": "int8", "always_ram": True}},
        update_queue={"length": 0},
    ),
    "1.19": shaped(
        {"on_disk_payload": True, "payload": {"memory": "cold"}},
        {"scalar": {"type": "int8", "memory": "pinned"}},
        update_queue={"length": 0, "deferred_points": 3},
        warnings=[{"message": "on_disk_payload is deprecated"}],
    ),
    "newer": shaped(
        {
            "payload": {"memory": "tepid"},
            "vectors": {"size": 4, "distance": "Hamming", "memory": "tepid", "layout": {"rows": 1}},
        },
        {"quaternary": {"bits": 4}},
        status="chartreuse",
        optimizer_status={"paused": True},
        payload_schema={"doc_id": {"data_type": "uuid7", "params": {"type": "uuid7"}}},
    ),
}


def meaning(cause: Exception, health: ServiceHealth | None = None) -> LatentError:
    with (
        pytest.raises(LatentError) as raised,
        mapped_errors(NAME, 10.0, health or ServiceHealth()),
    ):
        raise cause
    return raised.value


def answer(status: int, text: str) -> UnexpectedResponse:
    body = json.dumps({"status": {"error": text}, "time": 0.0}).encode()
    return UnexpectedResponse(status, "-", body, httpx.Headers())


@pytest.mark.parametrize(
    ("status", "text", "kind", "message"),
    [
        (500, "Service internal error: task panicked", UpstreamError, "task panicked"),
        # full
        (500, str(REFUSALS[QdrantFault.DISK_FULL]), StoreFull, "no space left on its disk"),
        (500, str(REFUSALS[QdrantFault.FILE_ERROR]), StoreFull, "free space there"),
        (
            500,
            "Service internal error: Failed to save structure on disk with error: (os error 122)",
            StoreFull,
            "free space there",
        ),
        (507, str(REFUSALS[QdrantFault.DISK_QUOTA]), StoreFull, "max_disk_usage_percent"),
        (507, str(REFUSALS[QdrantFault.MEMORY_QUOTA]), StoreFull, "delete points"),
        (507, "", StoreFull, "takes no more vectors"),
        (400, MEMORY_OF_A_COLLECTION, StoreFull, "Resident memory"),
        (400, "Bad request: Max points count limit of 9 reached!", OutOfSpace, f"{NAME} is full"),
        (
            400,
            "Bad request: Max vector storage size limit of 1.5MB reached!",
            OutOfSpace,
            "strict mode",
        ),
        (
            400,
            f"Bad request: Can't create collection with name {NAME}. Max collections limit reached: 9",
            Misconfigured,
            "LLC_QDRANT_COLLECTIONS",
        ),
        # passing
        (503, str(REFUSALS[QdrantFault.RECOVERING]), NotReady, "snapshot"),
        (500, str(REFUSALS[QdrantFault.NO_REPLICA]), NotReady, "nodes of the Qdrant cluster"),
        (500, str(REFUSALS[QdrantFault.NO_LEADER]), NotReady, "nodes of the Qdrant cluster"),
        (500, DEAD_NODE, NotReady, "nodes of the Qdrant cluster"),
        (500, NOT_DEACTIVATED, NotReady, "nodes of the Qdrant cluster"),
        (500, "Service internal error: 0 of 0 read operations failed", NotReadable, "yet"),
        # for a person
        (500, str(REFUSALS[QdrantFault.RECOVERY_MODE]), NotReady, "ran out of memory.*restart"),
        (
            500,
            "Service internal error: Failed to Update Points,  Dirty shard - shard is not fully initialized",
            NotReady,
            "Dirty shard",
        ),
        (502, "", NotConnected, "proxy"),
        (503, "", NotConnected, "proxy"),
        (504, "", UpstreamTimeout, "gave up"),
        (408, str(REFUSALS[QdrantFault.TIMED_OUT]), UpstreamTimeout, "gave up"),
        (500, TIMED_OUT_READ, UpstreamTimeout, "gave up"),
        (401, "Invalid API key or JWT", ServiceUnreachable, "LLC_QDRANT_API_KEY"),
        (403, "Forbidden: Global manage access is required", ServiceUnreachable, "manage access"),
        (404, f"Not found: Collection `{NAME}` doesn't exist!", NotFound, NAME),
        (404, "", ServiceUnreachable, "LLC_QDRANT_URL"),
        (302, "", ServiceUnreachable, "LLC_QDRANT_URL"),
        (409, f"Wrong input: Collection `{NAME}` already exists!", Conflict, NAME),
        (413, "", Invalid, "32 MB"),
        (
            400,
            "JSON payload (33554446 bytes) is larger than allowed (limit: 33554432 bytes).",
            Invalid,
            "larger than allowed",
        ),
        (
            400,
            'Bad request: Limit exceeded 3 > 2 for "limit". Help: Reduce the "limit" parameter to or below 2.',
            Invalid,
            "Help: Reduce",
        ),
        (429, "Too Many Requests", UpstreamOverload, "limits requests"),
        (
            429,
            "Rate limiting exceeded: Write rate limit exceeded, request larger than rate limiter capacity, please try "
            "to split your request",
            Misconfigured,
            "raise .*write_rate_limit",
        ),
    ],
)
def test_status_and_text_of_a_refusal_decide_which_error_it_is(
    status: int, text: str, kind: type[LatentError], message: str
) -> None:
    error = meaning(answer(status, text))
    assert type(error) is kind
    assert re.search(message, error.message)
    assert error.counts_as_attempt is (kind in COUNTING)


def test_an_error_does_not_name_the_nodes_of_a_cluster() -> None:
    text = "Service internal error: http://node-2:6335/ and 10.0.0.3:6335 failed"
    error = meaning(answer(500, text))
    assert error.message == "Qdrant failed (500): Service internal error: … and … failed"


@pytest.mark.parametrize(
    ("cause", "seconds"),
    [
        (ResourceExhaustedResponse("slow down", 30), 30),
        (QdrantException("Retry-After header value is not a valid integer"), RETRY_AFTER_SECONDS),
        (answer(429, "Too Many Requests"), RETRY_AFTER_SECONDS),
    ],
)
def test_a_rate_limit_says_when_to_try_again(cause: Exception, seconds: float) -> None:
    error = meaning(cause)
    assert type(error) is UpstreamOverload
    assert error.details["retry_after"] == seconds


def test_an_answer_that_cannot_be_read_is_not_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    class Answer(BaseModel):
        status: int

    with pytest.raises(ValidationError) as unread:
        Answer.model_validate({"status": "chartreuse"})
    error = meaning(ResponseHandlingException(unread.value))
    assert type(error) is UpstreamError
    assert re.search("cannot be read .*status.*newer", error.message)
    assert not caplog.records


def test_a_page_that_is_no_json_is_not_qdrant() -> None:
    with pytest.raises(json.JSONDecodeError) as unread:
        json.loads("<html>It works!</html>")
    error = meaning(unread.value)
    assert type(error) is ServiceUnreachable
    assert "LLC_QDRANT_URL" in error.message


def test_a_timeout_of_the_server_counts_while_other_calls_succeed() -> None:
    health = ServiceHealth()
    health.succeeded()
    assert meaning(answer(408, str(REFUSALS[QdrantFault.TIMED_OUT])), health).counts_as_attempt


@pytest.mark.parametrize("version", SHAPES)
def test_a_collection_is_read_from_the_answer_of_any_version(version: str) -> None:
    text = SHAPES[version]
    info = CollectionInfo.model_validate_json(text)
    assert (info.dims, info.points, info.replicas, info.acknowledgements) == (4, 7, 2, 1)
    assert set(info.indexes) == {"doc_id"}
    assert info.quantization == json.loads(text)["result"]["config"]["quantization_config"]
    assert StrictModeLimits.of(info.strict_mode) == StrictModeLimits(query=100, exact=False)


def test_a_collection_with_named_vectors_has_no_size_of_ours() -> None:
    text = shaped({"vectors": {"text": {"size": 4, "distance": "Cosine"}}})
    assert CollectionInfo.model_validate_json(text).dims is None


def test_a_request_has_no_more_points_than_a_rate_limit_allows_in_a_minute() -> None:
    limits = StrictModeLimits.of(
        {
            "enabled": True,
            "upsert_max_batchsize": 100,
            "write_rate_limit": 60,
            "read_rate_limit": 50,
        }
    )
    assert (limits.upsert, limits.retrieve) == (50, 50)
    assert StrictModeLimits.of({"enabled": False, "write_rate_limit": 1}) == StrictModeLimits()
