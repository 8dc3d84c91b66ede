"""Maps errors of ``minio`` and ``urllib3`` to ours."""

from __future__ import annotations

import errno
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from minio.error import InvalidResponseError, MinioException, S3Error, ServerError
from urllib3.exceptions import (
    HTTPError,
    MaxRetryError,
    ProtocolError,
    ReadTimeoutError,
    ResponseError,
)

from latent_core.domain.errors import (
    Invalid,
    LatentError,
    OutOfSpace,
    ServiceUnreachable,
    StoreFull,
    Unavailable,
    UpstreamError,
    UpstreamOverload,
)
from latent_core.domain.service_health import ServiceHealth

logger = logging.getLogger(__name__)

_FULL: Final = frozenset(
    {
        "XMinioStorageFull",
        "StorageFull",
        "InsufficientStorage",
        "QuotaExceeded",
        "EntityTooLargeForQuota",
    }
)
_KEYS: Final = frozenset(
    {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "RequestTimeTooSkewed"}
)
_OVERLOADED: Final = frozenset({"SlowDown", "SlowDownRead", "SlowDownWrite"})
_FAILING: Final = frozenset({"InternalError", "ServiceUnavailable"})
_ANSWERS: Final = (InvalidResponseError, ServerError, ResponseError)
"""The server is reachable but failed at this request."""
_CODE: Final = re.compile(rb"<Code>([A-Za-z0-9.]{1,80})</Code>")


class NotConnected(ServiceUnreachable):
    """No connection to the server is possible."""


class KeyRefused(ServiceUnreachable):
    """The server refuses the key, or the key's access to the bucket."""


class BucketRefused(ServiceUnreachable):
    """A bucket that a manifest names is lost or belongs to another database."""


class BucketFull(OutOfSpace):
    """A bucket that a manifest names accepts no writes; others may."""

    counts_as_attempt = False


@contextmanager
def mapped_errors(health: ServiceHealth) -> Iterator[None]:
    """Raise our errors for those of one call, with their cause."""
    try:
        yield
        health.succeeded()
    except S3Error as exc:
        raise _of_code(exc.code or "", 0) from exc
    except (MinioException, HTTPError, TimeoutError) as exc:
        raise _failed(exc, health) from exc
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            raise OutOfSpace(
                "the disk of this machine is full: free space on the disk of the data directory, then try again"
            ) from exc
        raise Unavailable(f"a blob cannot be copied on this machine: {exc.strerror}") from exc


def _failed(exc: Exception, health: ServiceHealth) -> LatentError:
    reason = exc.reason if isinstance(exc, MaxRetryError) else exc
    if isinstance(reason, ReadTimeoutError | TimeoutError):
        return health.timeout("the S3 server did not answer in time")
    # The cause names hosts, which users must not see.
    cause = str(exc) or type(exc).__name__
    if isinstance(reason, ProtocolError):
        return health.closed("the S3 server closed the connection; see the log", cause)
    health.unreachable(cause)
    if isinstance(reason, _ANSWERS):
        return UpstreamError("the S3 server failed; see the log")
    return NotConnected("the S3 server is not available; see the log")


def refused(status: int, body: bytes) -> LatentError:
    """The error for an unsuccessful response."""
    found = _CODE.search(body)
    return _of_code(found[1].decode() if found else "", status)


def _of_code(code: str, status: int) -> LatentError:
    if code in _FULL or status == 507:
        return StoreFull(
            "the S3 server has no space left: free space there and try again", service="minio"
        )
    if code in _KEYS:
        return KeyRefused(
            f"the S3 server refuses the key ({code}): check LLC_S3_ACCESS_KEY, LLC_S3_SECRET_KEY and the clock"
        )
    if code == "NoSuchBucket":
        return ServiceUnreachable(
            "the S3 bucket is gone: restore it, or check its name (LLC_S3_BUCKET, or storage.blobs.bucket of the manifest)"
        )
    if code in ("InvalidBucketName", "EntityTooLarge"):
        return Invalid(f"the S3 server refuses the request ({code})")
    if code in _OVERLOADED or status == 429:
        return UpstreamOverload(f"the S3 server limits requests ({code or status})")
    failed = UpstreamError if status >= 500 or code in _FAILING else Unavailable
    return failed(f"the S3 server failed ({code or status})")
