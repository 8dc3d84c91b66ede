"""Saved searches: requests that a principal keeps under names."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

from pydantic import BaseModel, Field

from latent_core.domain.text import Text
from latent_core.wire.base import Envelope, RequestBody
from latent_core.wire.search import SearchRequest

MAX_SAVED: Final = 100
"""Of one principal."""
MAX_NAME_CHARS: Final = 100
MAX_BYTES: Final = 64 * 1024
"""Of one request as JSON."""


class SavedSearch(BaseModel):
    id: int
    name: str
    request: SearchRequest
    """As ``POST /v1/containers/search`` takes it, without a cursor."""
    saved_at: datetime


class SaveSearchBody(RequestBody):
    name: Annotated[Text, Field(min_length=1, max_length=MAX_NAME_CHARS)]
    """A search of the same name is replaced."""
    request: SearchRequest


class SavedSearchAnswer(Envelope):
    saved_search: SavedSearch


class SavedSearchList(Envelope):
    saved_searches: list[SavedSearch]
    """By name; at most ``MAX_SAVED``, or more after the restore of a backup."""
