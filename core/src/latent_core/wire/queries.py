"""The log of queries: which ones were frequent, had no hits, or had weak ones."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final

from pydantic import BaseModel

from latent_core.wire.base import Envelope

WEAK_BELOW: Final = 0.5
"""Relevance of weak hits."""


class QueryKind(StrEnum):
    FREQUENT = "frequent"
    WITHOUT_HITS = "without_hits"
    """The last answer had no hit, in none of the searched containers. Searches with filters do not count."""
    WEAK = "weak"
    """The best hit of the last answer had a relevance below 0.5. Searches with filters do not count."""


class LoggedQuery(BaseModel):
    """Equal queries, in the words of the last one. Case does not matter."""

    query: str
    times: int
    last_at: datetime
    mode: str
    """Of the last one, as the answers below."""
    hits: int
    """Of this container, on the first page."""
    all_hits: int
    """Of all containers that were searched together, on the first page."""
    relevance: float | None
    """0..1, of the best hit; None if it was not measured."""
    golden: bool
    """Whether it is a golden query of the container."""


class QueryLogAnswer(Envelope):
    """The log of one container."""

    container_id: str
    keep_days: int | None
    """As the manifest says; None: its queries are not logged."""
    logged: int
    """Searches that the list is made of, at most 50,000."""
    since: datetime | None
    """The first of them."""
    queries: list[LoggedQuery]


class QueryLogCleared(Envelope):
    deleted: int
    """Entries."""
