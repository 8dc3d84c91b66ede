"""Field types shared by several requests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from latent_core.domain.text import Text

MAX_PATH: Final = 4096
MAX_URI_BYTES: Final = 2000
"""Below the limit of the index on uris."""
YEARS: Final = range(1900, 2201)


def _plausible(value: datetime) -> datetime:
    if value.year not in YEARS:
        raise ValueError(f"must be between the years {YEARS[0]} and {YEARS[-1]}")
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


def _indexable(value: str) -> str:
    if len(value.encode()) > MAX_URI_BYTES:
        raise ValueError(f"must have at most {MAX_URI_BYTES} bytes")
    return value


SourceUri = Annotated[Text, AfterValidator(_indexable)]
Moment = Annotated[datetime, AfterValidator(_plausible)]
"""With a time zone; UTC unless the value names another."""
ContainerId = Annotated[Text, Field(max_length=64)]
