"""Errors as data: every error that a user can cause is an issue with a code, a cause and a remedy.

LatentError
├── Invalid       400  the request (or the content) cannot be understood
├── Unauthorized  401  no valid token
├── Forbidden     403  a policy denies it
├── NotFound      404  it does not exist, or may not be seen
├── Conflict      409  it conflicts with stored data
├── TooLarge      413  over a stated limit
├── IngestFailed  422  the content cannot be ingested
│   └── InputRefused   a model's server refuses one of the inputs of a request
├── RateLimited   429  too many requests
│   └── LimitReached   the shared limit of a service
├── Unavailable   503  a backing service is not available; retry
│   ├── ServiceUnreachable  it accepts no request
│   ├── UpstreamError     it answered this request with an error
│   │   ├── ConnectionClosed   or closed the connection
│   │   └── MalformedAnswer    or sent what is no answer
│   ├── UpstreamOverload  it requests a lower rate, such as by 429
│   ├── Misconfigured  it refuses requests until a person changes a setting
│   │   ├── ModelMissing    the model of stored vectors is not on this machine
│   │   │   └── OtherModel     a server has another model under its name
│   │   └── MarkerMismatch  its marker is missing or names another holder
│   ├── DamagedBlob    stored bytes do not match their hash
│   ├── ReadOnlyStore  a store accepts reads only
│   └── OutOfSpace     507, too little free space
│       └── StoreFull  a store reports a full disk
└── TimedOut      504  a deadline has passed
    └── UpstreamTimeout   a backing service did not answer this request

A job is tried ``max_attempts`` times; an error counts as an attempt if ``counts_as_attempt`` is true. These errors do
not count, since the request is not their cause: ``ServiceUnreachable``, ``ModelMissing``, ``MarkerMismatch``,
``ReadOnlyStore``, ``UpstreamOverload``, ``LimitReached``, ``StoreFull``, and ``UpstreamTimeout`` or a closed connection while no other call to that service
succeeds (``domain.service_health``). See ``queue.requeue``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, Field


class IssueCode(StrEnum):
    """Codes of CONTRACT "HTTP v1"; the last four are additions."""

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
    """A problem with its code and message, in answers, on jobs and in reports."""

    code: IssueCode
    message: str
    details: dict[str, Any] = Field(default_factory=dict)


class LatentError(Exception):
    """Root of all errors of this project. ``message`` says what happened and what to do."""

    code: ClassVar[IssueCode] = IssueCode.INVALID
    status: ClassVar[int] = 400
    transient: ClassVar[bool] = False
    """Whether the same call may succeed later without a change by the user."""
    counts_as_attempt: bool = True
    """Whether the request itself failed. If not, the job waits for the service and spends no attempt."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def issue(self) -> Issue:
        return Issue(code=self.code, message=self.message, details=self.details)

    def copied(self) -> Self:
        """The same error for another caller: one that several raise would collect all their tracebacks."""
        error = type(self).__new__(type(self), *self.args)
        error.__dict__ |= self.__dict__
        error.__cause__ = self
        return error


class Invalid(LatentError):
    """The request or the content cannot be understood."""


class Unauthorized(LatentError):
    """No valid token."""

    code = IssueCode.AUTH
    status = 401


class Forbidden(LatentError):
    """A policy denies it."""

    code = IssueCode.POLICY
    status = 403


class NotFound(LatentError):
    """It does not exist, or the principal may not see it; both cases give the same answer."""

    code = IssueCode.NOT_FOUND
    status = 404


class Conflict(LatentError):
    """It conflicts with stored data."""

    code = IssueCode.CONFLICT
    status = 409


class PreconditionFailed(Conflict):
    """``If-Match`` names another version than the stored one."""

    status = 412


class TooLarge(LatentError):
    """It exceeds a limit."""

    status = 413


class IngestFailed(LatentError):
    """The content cannot be ingested, and trying again will not help."""

    code = IssueCode.INGEST_FAIL
    status = 422


class InputRefused(IngestFailed):
    """A model's server refuses an input of the request; the others of the same request may be accepted without it."""

    too_long: bool = False
    """Whether the input is longer than the server accepts."""


class RateLimited(LatentError):
    """Too many requests; ``retry_after`` in details is in seconds."""

    code = IssueCode.RATE_LIMIT
    status = 429
    transient = True


class LimitReached(RateLimited):
    """A shared limit on requests to an external service is reached."""

    counts_as_attempt = False


class Unavailable(LatentError):
    """A backing service is not available."""

    code = IssueCode.UNAVAILABLE
    status = 503
    transient = True


class ServiceUnreachable(Unavailable):
    """A backing service accepts no request: it refuses connections or the key."""

    counts_as_attempt = False


class UpstreamError(Unavailable):
    """A backing service answered this request with an error (5xx)."""


class ConnectionClosed(UpstreamError):
    """A backing service closed the connection without an answer. ``ServiceHealth`` knows whether others were answered."""

    def __init__(self, message: str, *, counts_as_attempt: bool, **details: Any) -> None:
        super().__init__(message, **details)
        self.counts_as_attempt = counts_as_attempt


class MalformedAnswer(UpstreamError):
    """A model's server answered with success, but not as its API does: cut off, of another content type, or not JSON."""


class UpstreamOverload(Unavailable):
    """A backing service requests a lower rate: 429 of a store, ``SlowDown``, 503 with ``Retry-After``."""

    counts_as_attempt = False


class Misconfigured(Unavailable):
    """An external service refuses all requests until a person changes the setting that the message names."""

    transient = False


class ModelMissing(Misconfigured):
    """This machine lacks the model of stored vectors, or the settings of its server. Transient, since a person may
    install it: jobs wait for that."""

    transient = True
    counts_as_attempt = False


class OtherModel(ModelMissing):
    """The model behind a provider's name is another one than that of the stored vectors."""


class MarkerMismatch(Misconfigured):
    """The marker of an installation on a server is missing, or names another holder. It stops a start. Transient, since a
    person may restore the data or the setting: jobs wait for that."""

    transient = True
    counts_as_attempt = False


class DamagedBlob(Unavailable):
    """Stored bytes do not match their hash. Transient, since a person may restore them."""


class ReadOnlyStore(Unavailable):
    """A store accepts reads only. Transient, since a failover or a person may end that."""

    counts_as_attempt = False


class OutOfSpace(Unavailable):
    """Too little free space. Transient, since a person may free some."""

    status = 507


Service = Literal["postgres", "qdrant", "minio"]
"""The stores by their names in readiness and metrics; ``minio`` means any S3 server or local files."""


class StoreFull(OutOfSpace):
    """A store reports a full disk: all writes fail."""

    counts_as_attempt = False

    def __init__(self, message: str, *, service: Service, **details: Any) -> None:
        super().__init__(message, service=service, **details)
        self.service = service


class TimedOut(LatentError):
    """A deadline has passed."""

    code = IssueCode.TIMEOUT
    status = 504
    transient = True


class WriteTimedOut(TimedOut):
    """A deadline has passed during a change that may have been made: a repetition could make it twice."""

    transient = False


class UpstreamTimeout(TimedOut):
    """A backing service did not answer in time. ``ServiceHealth`` knows whether it answers other calls."""

    def __init__(self, message: str, *, counts_as_attempt: bool, **details: Any) -> None:
        super().__init__(message, **details)
        self.counts_as_attempt = counts_as_attempt
