"""Which errors of services count as an attempt of the job that met them."""

from __future__ import annotations

import httpx
import pytest
import urllib3
from minio.error import InvalidResponseError
from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse
from urllib3.exceptions import (
    ConnectTimeoutError,
    MaxRetryError,
    NewConnectionError,
    ProtocolError,
    ReadTimeoutError,
    ResponseError,
)

from latent_core.blobs import s3_errors
from latent_core.domain.errors import (
    ConnectionClosed,
    LatentError,
    StoreFull,
    UpstreamError,
    UpstreamOverload,
    UpstreamTimeout,
)
from latent_core.domain.service_health import HEALTHY_SECONDS, ServiceHealth
from latent_core.models.http.client import connection_trouble
from latent_core.vectors.qdrant import errors as qdrant_errors
from latent_core.vectors.qdrant.errors import NotConnected

POOL = urllib3.HTTPConnectionPool("s3")
REFUSED = NewConnectionError(POOL, "refused")  # type: ignore[arg-type]  # as urllib3 does


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (500, "InternalError", UpstreamError),
        (502, "", UpstreamError),
        (503, "ServiceUnavailable", UpstreamError),
        (503, "SlowDown", UpstreamOverload),
        (429, "", UpstreamOverload),
        (507, "XMinioStorageFull", StoreFull),
        (403, "InvalidAccessKeyId", s3_errors.KeyRefused),
    ],
)
def test_an_error_answer_of_s3_counts_unless_it_is_a_limit_a_full_store_or_a_refused_key(
    status: int, code: str, kind: type[LatentError]
) -> None:
    error = s3_errors.refused(status, f"<Code>{code}</Code>".encode())
    assert type(error) is kind
    assert error.counts_as_attempt is (kind is UpstreamError)


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (InvalidResponseError(500, "text/html", "<html>"), UpstreamError),
        (MaxRetryError(POOL, "/b", ResponseError("too many 502 error responses")), UpstreamError),
        (MaxRetryError(POOL, "/b", ProtocolError("connection broken")), ConnectionClosed),
        (MaxRetryError(POOL, "/b", REFUSED), s3_errors.NotConnected),
        (MaxRetryError(POOL, "/b", ConnectTimeoutError("late")), s3_errors.NotConnected),
        (MaxRetryError(POOL, "/b", ReadTimeoutError(POOL, "/b", "late")), UpstreamTimeout),
        (ReadTimeoutError(POOL, "/b", "late"), UpstreamTimeout),
    ],
)
def test_s3_is_unreachable_only_when_it_does_not_take_the_connection(
    cause: Exception, kind: type[LatentError]
) -> None:
    with pytest.raises(LatentError) as raised, s3_errors.mapped_errors(ServiceHealth()):
        raise cause
    assert type(raised.value) is kind
    assert raised.value.counts_as_attempt is issubclass(kind, UpstreamError)


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (UnexpectedResponse(500, "-", b"{}", httpx.Headers()), UpstreamError),
        (ResponseHandlingException(httpx.ReadError("reset")), ConnectionClosed),
        (ResponseHandlingException(httpx.ConnectError("refused")), NotConnected),
        (ResponseHandlingException(httpx.ConnectTimeout("late")), NotConnected),
        (ResponseHandlingException(httpx.ReadTimeout("late")), UpstreamTimeout),
        (TimeoutError(), UpstreamTimeout),
        (ResourceExhaustedResponse("429", 3), UpstreamOverload),
        (UnexpectedResponse(500, "-", b"No space left on device", httpx.Headers()), StoreFull),
    ],
)
def test_qdrant_is_unreachable_only_when_it_does_not_take_the_connection(
    cause: Exception, kind: type[LatentError]
) -> None:
    health = ServiceHealth()
    with (
        pytest.raises(LatentError) as raised,
        qdrant_errors.mapped_errors("c_a_text_1", 1.0, health),
    ):
        raise cause
    assert type(raised.value) is kind
    assert raised.value.counts_as_attempt is issubclass(kind, UpstreamError)


@pytest.mark.parametrize(
    "error",
    [
        UpstreamTimeout("late", counts_as_attempt=False, retry_after=3),
        StoreFull("full", service="qdrant"),
        UpstreamOverload("slow down", retry_after=3),
    ],
)
def test_a_copy_for_another_caller_is_the_same_error(error: LatentError) -> None:
    copy = error.copied()
    assert (type(copy), vars(copy), str(copy)) == (type(error), vars(error), str(error))
    assert copy.__cause__ is error


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_timeout_counts_while_other_calls_succeeded_in_the_last_minute() -> None:
    clock = Clock()
    health = ServiceHealth(clock=clock)
    assert not health.timeout("late").counts_as_attempt
    health.succeeded()
    clock.now += HEALTHY_SECONDS
    assert health.timeout("late").counts_as_attempt
    clock.now += 1
    assert not health.timeout("late").counts_as_attempt


def test_a_call_that_succeeds_is_what_shows_that_a_store_is_healthy() -> None:
    for mapped in (
        lambda health: s3_errors.mapped_errors(health),
        lambda health: qdrant_errors.mapped_errors("c_a_text_1", 1.0, health),
    ):
        health = ServiceHealth()
        with pytest.raises(UpstreamTimeout) as alone, mapped(health):
            raise TimeoutError
        with mapped(health):
            pass
        with pytest.raises(UpstreamTimeout) as among_others, mapped(health):
            raise TimeoutError
        assert not alone.value.counts_as_attempt
        assert among_others.value.counts_as_attempt


def test_only_the_first_closed_connection_since_an_answer_counts_as_an_attempt() -> None:
    """A request that ends the service is found, and an outage of any length costs one attempt."""
    health = ServiceHealth("qdrant")

    def closed() -> bool:
        with (
            pytest.raises(ConnectionClosed) as raised,
            qdrant_errors.mapped_errors("c_a_text_1", 1.0, health),
        ):
            raise ResponseHandlingException(httpx.ReadError("reset"))
        return raised.value.counts_as_attempt

    assert [closed() for _ in range(4)] == [True, False, False, False]
    health.succeeded()
    assert [closed(), closed()] == [True, False]


def test_a_refusal_is_named_also_when_the_host_s_other_address_has_no_route() -> None:
    error = httpx.ConnectError("All connection attempts failed")
    error.__cause__ = ExceptionGroup(
        "attempts", [OSError("Network is unreachable"), ConnectionRefusedError(111, "refused")]
    )
    assert connection_trouble(error) == "it refuses connections"
