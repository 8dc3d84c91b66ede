"""A document: one source in one container."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from pydantic import BaseModel


class DocumentState(StrEnum):
    PENDING = "pending"
    """Accepted, nothing visible yet."""
    LIVE = "live"
    DELETED = "deleted"


class DocumentView(BaseModel):
    """A document as the surfaces show it."""

    doc_id: UUID
    container_id: str
    source_uri: str
    external_id: str | None = None
    parent_id: UUID | None = None
    title: str | None
    mime: str
    source_type: str | None
    state: DocumentState
    generation: int | None
    chunks: int
    pages: int = 0
    bytes: int | None
    sha256: str | None
    language: str | None = None
    modified_at: datetime | None
    first_fetched_at: datetime | None
    fetched_at: datetime | None
    updated_at: datetime
    meta: dict[str, Any] = {}
