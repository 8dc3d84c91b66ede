"""Which errors of S3 and Qdrant are outages for sure, and which may be of one request."""

from __future__ import annotations

import httpx
import pytest
import urllib3
from minio.error import InvalidResponseError
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse
from urllib3.exceptions import MaxRetryError, NewConnectionError, ResponseError

from latent_core.blobs import s3_errors
from latent_core.domain.errors import Away
from latent_core.vectors import qdrant_errors

POOL = urllib3.HTTPConnectionPool("s3")


@pytest.mark.parametrize("status", [500, 502, 503])
def test_an_answer_that_says_it_failed_may_be_of_one_request(status: int) -> None:
    error = s3_errors.refused(status, b"<Code>InternalError</Code>")
    assert error.blameless
    assert error.doubtful


@pytest.mark.parametrize(
    ("cause", "doubtful"),
    [
        (InvalidResponseError(500, "text/html", "<html>"), True),
        (MaxRetryError(POOL, "/b", ResponseError("too many 502 error responses")), True),
        (MaxRetryError(POOL, "/b", NewConnectionError(POOL, "refused")), False),  # type: ignore[arg-type]  # as urllib3 does
    ],
)
def test_s3_that_cannot_be_reached_is_away_for_all(cause: Exception, doubtful: bool) -> None:
    with pytest.raises(Away) as raised, s3_errors.mapped_errors():
        raise cause
    assert raised.value.blameless
    assert raised.value.doubtful is doubtful


@pytest.mark.parametrize(
    ("cause", "doubtful"),
    [
        (UnexpectedResponse(500, "-", b"{}", httpx.Headers()), True),
        (ResponseHandlingException(httpx.ConnectError("refused")), False),
    ],
)
def test_qdrant_that_cannot_be_reached_is_away_for_all(cause: Exception, doubtful: bool) -> None:
    with pytest.raises(Away) as raised, qdrant_errors.mapped_errors("c_a_text_1", 1.0):
        raise cause
    assert raised.value.doubtful is doubtful
