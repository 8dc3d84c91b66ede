"""Base classes of requests and answers, and shared field types."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from latent_core.domain.errors import Issue
from latent_core.domain.text import Text


class Envelope(BaseModel):
    """Base of every answer."""

    request_id: str = ""
    version: Literal["v1"] = "v1"
    partial: bool = False
    timings: dict[str, float] = {}
    """Stage to milliseconds."""
    issues: list[Issue] = []


class RequestBody(BaseModel):
    model_config = ConfigDict(extra="forbid")


class PagedEnvelope(Envelope):
    """One page of a list."""

    next_cursor: str | None
    """None on the last page."""


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
PrincipalName = Annotated[Text, Field(min_length=3, max_length=128)]
