"""The ``Retry-After`` header of an answer: the wait that a server requests (RFC 9110 §10.2.3)."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def seconds_to_wait(header: str | None) -> float | None:
    """Seconds from now, never negative; None without a header, and for one that is neither a number nor a date."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):  # no date, or one without a zone
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
