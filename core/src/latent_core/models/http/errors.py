"""Answers of model servers that are no success, as our errors."""

from __future__ import annotations

from typing import Final

import httpx

from latent_core.domain.errors import LatentError, LimitReached, UpstreamError, UpstreamOverload
from latent_core.domain.retry_after import seconds_to_wait

TRANSIENT: Final = frozenset({408, 409, 425})
"""Statuses below 500 after which the same request may succeed later."""


def transient_error(
    name: str, response: httpx.Response, reason: str, *, transient: frozenset[int] = TRANSIENT
) -> LatentError | None:
    """The error of an answer that may be another one later; None if the request itself is refused."""
    status = response.status_code
    seconds = seconds_to_wait(response.headers.get("Retry-After"))
    details = {} if seconds is None else {"retry_after": seconds}
    if status == 429:
        message = f"{name} accepts no more now (429): {reason}"
        return LimitReached(message, upstream_status=status, **details)
    if status >= 500 or status in transient:
        failed = UpstreamOverload if status == 503 and details else UpstreamError
        return failed(f"{name} failed ({status}): {reason}", upstream_status=status, **details)
    return None
