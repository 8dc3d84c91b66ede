"""What a Qdrant server answers when it refuses a request: status, text and headers.

The kinds and their texts are those of lib/storage/src/content_manager/errors.rs in Qdrant's source (1.19), their
statuses those of src/actix/helpers.rs.
"""

from __future__ import annotations


class FakeRefusal(Exception):
    """An answer that is no success. ``plain`` text is no JSON, as before a request reaches its handler."""

    def __init__(
        self, status: int, message: str, *, retry_after: int | None = None, plain: bool = False
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
        self.plain = plain


def wrong_input(description: str) -> FakeRefusal:
    return FakeRefusal(400, f"Wrong input: {description}")


def bad_request(description: str) -> FakeRefusal:
    return FakeRefusal(400, f"Bad request: {description}")


def format_error(cause: str) -> FakeRefusal:
    """A body that cannot be read: ``validation_error_handler`` of src/actix/mod.rs."""
    return FakeRefusal(400, f"Format error in JSON body: {cause}")


def bad_parameter(cause: str) -> FakeRefusal:
    return FakeRefusal(400, f"Deserialize error in query parameters: {cause}")


def invalid(field: str, cause: str, *, place: str = "JSON body") -> FakeRefusal:
    """A value that can be read but not used: lib/collection/src/operations/validation.rs."""
    return FakeRefusal(422, f"Validation error in {place}: [{field}: {cause}]")


def too_large(length: int, limit: int) -> FakeRefusal:
    """``OverflowKnownLength`` of actix-web, which Qdrant answers with 400, not 413."""
    return FakeRefusal(
        400, f"JSON payload ({length} bytes) is larger than allowed (limit: {limit} bytes)."
    )


def strict_mode(error: str, solution: str) -> FakeRefusal:
    """``CollectionError::strict_mode`` of lib/collection/src/operations/types.rs."""
    return bad_request(f"{error}. Help: {solution}")


def not_found(name: str) -> FakeRefusal:
    """lib/storage/src/content_manager/collections_ops.rs."""
    return FakeRefusal(404, f"Not found: Collection `{name}` doesn't exist!")


def already_exists(name: str) -> FakeRefusal:
    return FakeRefusal(409, f"Wrong input: Collection `{name}` already exists!")


def unauthorized(key: str | None) -> FakeRefusal:
    """src/common/auth/mod.rs, by src/actix/auth.rs."""
    wrong = "Invalid API key or JWT"
    missing = "Must provide an API key or an Authorization bearer token"
    return FakeRefusal(401, missing if key is None else wrong, plain=True)


def read_only_key() -> FakeRefusal:
    """lib/storage/src/rbac/mod.rs."""
    return FakeRefusal(403, "Forbidden: Global manage access is required")


def service_error(description: str) -> FakeRefusal:
    return FakeRefusal(500, f"Service internal error: {description}")


def insufficient_storage(description: str) -> FakeRefusal:
    return FakeRefusal(507, f"Insufficient storage: {description}")


def disk_quota(used_percent: int, limit: int) -> FakeRefusal:
    """lib/shard/src/quota/check.rs."""
    return insufficient_storage(
        f"Disk usage is at {used_percent}% of total capacity, exceeding the configured limit of {limit}%. "
        "Help: Reduce disk usage (e.g. delete points or drop collections), or raise `max_disk_usage_percent` "
        "in the global quota config."
    )


def rate_limited(kind: str, cause: str, retry_after: int | None = None) -> FakeRefusal:
    """``CollectionError::rate_limit_error`` of lib/collection/src/operations/types.rs."""
    return FakeRefusal(
        429,
        f"Rate limiting exceeded: {kind} rate limit exceeded{cause}",
        retry_after=retry_after,
    )
