"""What can go wrong, as data: every error a user can cause is an issue with a code, a cause and a remedy.

LatentError
├── Invalid       400  the request (or the content) cannot be understood
├── Unauthorized  401  no valid token
├── Forbidden     403  a policy says no
├── NotFound      404  it does not exist, or may not be seen
├── Conflict      409  it clashes with what is stored
├── TooLarge      413  over a stated limit
├── IngestFailed  422  the content cannot be ingested
├── RateLimited   429  too many requests
│   └── LimitReached   the shared limit of a service
├── Unavailable   503  a backing service is away; try again
│   ├── Unreachable       no request gets through to it
│   ├── UpstreamError     it answered this request with an error
│   ├── UpstreamOverload  it asks for fewer requests, as 429 does
│   ├── Misconfigured  it refuses us until a person changes a setting
│   ├── Damaged        what it keeps is not what was stored
│   └── OutOfSpace     507, there is no room for it
│       └── StoreFull  a store says that it is full
└── TimedOut      504  a deadline has passed
    └── UpstreamTimeout   a backing service did not answer this request

A job whose attempt ends with an error that counts (``counts_as_attempt``) is tried ``max_attempts`` times. The others
say nothing of the request: ``GatewayUnreachable``, ``UpstreamOverload``, ``LimitReached``, ``StoreFull``, and ``UpstreamTimeout``
while no other call to that service succeeds (``domain.service_health``). See ``queue.comeback``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field


class IssueCode(StrEnum):
    """Codes of CONTRACT "HTTP v1"; the last four are ours."""

    AUTH = "AUTH"
    TIMEOUT = "TIMEOUT"
    NO_HITS = "NO_HITS"
    RATE_LIMIT = "RATE_LIMIT"
    POLICY = "POLICY"
    INGEST_FAIL = "INGEST_FAIL"
    NOT_FOUND = "NOT_FOUND"
    INVALID = "INVALID"
    CONFLICT = "CONFLICT"
    UNAVAILABLE = "UNAVAILABLE"


class Issue(BaseModel):
    """One thing the reader should know: in answers, on jobs, in reports."""

    code: IssueCode
    message: str
    details: dict[str, Any] = Field(default_factory=dict)


class LatentError(Exception):
    """Root of every error of ours. ``message`` says what happened and what to do about it."""

    code: ClassVar[IssueCode] = IssueCode.INVALID
    status: ClassVar[int] = 400
    transient: ClassVar[bool] = False
    """Whether the same call may succeed later without a change by the user."""
    counts_as_attempt: bool = True
    """Whether it is an answer to this very request. If not, the job waits for the service and spends no attempt."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def issue(self) -> Issue:
        return Issue(code=self.code, message=self.message, details=self.details)


class Invalid(LatentError):
    """The request or the content cannot be understood."""


class Unauthorized(LatentError):
    """No valid token."""

    code = IssueCode.AUTH
    status = 401


class Forbidden(LatentError):
    """A policy says no."""

    code = IssueCode.POLICY
    status = 403


class NotFound(LatentError):
    """It does not exist, or the principal may not see it: both give the same answer."""

    code = IssueCode.NOT_FOUND
    status = 404


class Conflict(LatentError):
    """It clashes with what is stored."""

    code = IssueCode.CONFLICT
    status = 409


class PreconditionFailed(Conflict):
    """``If-Match`` names another version than the stored one."""

    status = 412


class TooLarge(LatentError):
    """Over a stated limit."""

    status = 413


class IngestFailed(LatentError):
    """The content cannot be ingested, and trying again will not help."""

    code = IssueCode.INGEST_FAIL
    status = 422


class RateLimited(LatentError):
    """Too many requests; ``retry_after`` in details is in seconds."""

    code = IssueCode.RATE_LIMIT
    status = 429
    transient = True


class LimitReached(RateLimited):
    """A limit that all who use a service outside share."""

    counts_as_attempt = False


class Unavailable(LatentError):
    """A backing service is away."""

    code = IssueCode.UNAVAILABLE
    status = 503
    transient = True


class GatewayUnreachable(Unavailable):
    """No request gets through to a backing service: it refuses connections, or our key."""

    counts_as_attempt = False


class UpstreamError(Unavailable):
    """A backing service answered this request with an error (5xx), or broke off while it worked on it."""


class UpstreamOverload(Unavailable):
    """A backing service asks for fewer requests: 429 of a store, ``SlowDown``, 503 with ``Retry-After``."""

    counts_as_attempt = False


class Misconfigured(Unavailable):
    """A service outside refuses us, and will until a person changes what the message names."""

    transient = False


class DamagedBlob(Unavailable):
    """Stored bytes are not what their name says. Transient: a person may restore them."""


class OutOfSpace(Unavailable):
    """There is no room for it. Transient: a person may make some."""

    status = 507


Service = Literal["postgres", "qdrant", "minio"]
"""The stores as readiness and metrics name them; ``minio`` is any S3, and the embedded files."""


class StoreFull(OutOfSpace):
    """A store says that it is full: nothing can be written, whatever it is."""

    counts_as_attempt = False

    def __init__(self, message: str, *, service: Service, **details: Any) -> None:
        super().__init__(message, service=service, **details)
        self.service = service


class TimedOut(LatentError):
    """A deadline has passed."""

    code = IssueCode.TIMEOUT
    status = 504
    transient = True


class UpstreamTimeout(TimedOut):
    """A backing service did not answer in time. ``ServiceHealth`` knows whether it answers other calls."""

    def __init__(self, message: str, *, counts_as_attempt: bool, **details: Any) -> None:
        super().__init__(message, **details)
        self.counts_as_attempt = counts_as_attempt
