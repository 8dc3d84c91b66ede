"""Where the errors of ``minio`` and ``urllib3`` become ours."""

from __future__ import annotations

import errno
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import urllib3
from minio.error import InvalidResponseError, MinioException, S3Error, ServerError

from latent_core.domain.errors import (
    Away,
    Failing,
    Invalid,
    LatentError,
    NoAnswer,
    OutOfSpace,
    StoreFull,
    Unavailable,
)

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
_FAILING: Final = frozenset({"InternalError", "ServiceUnavailable", "SlowDown"})
_CODE: Final = re.compile(rb"<Code>([A-Za-z0-9.]{1,80})</Code>")


@contextmanager
def mapped_errors() -> Iterator[None]:
    """Errors of one call leave as ours, with their cause."""
    try:
        yield
    except S3Error as exc:
        raise _of_code(exc.code or "", 0) from exc
    except (urllib3.exceptions.TimeoutError, TimeoutError) as exc:
        raise NoAnswer("the S3 server did not answer in time") from exc
    except (MinioException, urllib3.exceptions.HTTPError) as exc:
        # The cause names hosts, which are not the reader's business.
        logger.warning("s3_not_available", extra={"cause": str(exc) or type(exc).__name__})
        if _answered(exc):
            raise Failing("the S3 server failed; the log says how") from exc
        raise Away("the S3 server is not available; the log says why") from exc
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            raise OutOfSpace(
                "the disk of this machine is full: make room in the data directory, then try again"
            ) from exc
        raise Unavailable(f"a blob cannot be copied on this machine: {exc.strerror}") from exc


def _answered(exc: Exception) -> bool:
    """Whether it is there, and says that it failed."""
    if isinstance(exc, urllib3.exceptions.MaxRetryError):
        return isinstance(exc.reason, urllib3.exceptions.ResponseError)
    return isinstance(exc, InvalidResponseError | ServerError)


def refused(status: int, body: bytes) -> LatentError:
    """The error for an answer that is no success."""
    found = _CODE.search(body)
    return _of_code(found[1].decode() if found else "", status)


def _of_code(code: str, status: int) -> LatentError:
    if code in _FULL or status == 507:
        return StoreFull(
            "the S3 server has no space left: make room and try again", service="minio"
        )
    if code in _KEYS:
        return Away(
            f"the S3 server refuses the key ({code}): check LLC_S3_ACCESS_KEY, LLC_S3_SECRET_KEY and the clock"
        )
    if code == "NoSuchBucket":
        return Away("the S3 bucket is gone: restore it, or check LLC_S3_BUCKET")
    if code in ("InvalidBucketName", "EntityTooLarge"):
        return Invalid(f"the S3 server refuses the request ({code})")
    failed = Failing if status >= 500 or code in _FAILING else Unavailable
    return failed(f"the S3 server failed ({code or status})")
