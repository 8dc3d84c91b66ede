"""A container as the surfaces show it."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel


class ContainerState(StrEnum):
    ACTIVE = "active"
    READONLY = "readonly"
    ARCHIVED = "archived"


class ContainerSummary(BaseModel):
    id: str
    name: str
    modalities: list[str]
    dims: int | None
    state: ContainerState


class ContainerSizes(BaseModel):
    """Live contents only. ``bytes`` counts originals: a corpus counts with its file, its records do not count."""

    documents: int
    pending_documents: int
    chunks: int
    pages: int
    bytes: int


class ContainerDescription(BaseModel):
    manifest: dict[str, Any]
    sizes: ContainerSizes
    last_ingest_at: datetime | None
    state: ContainerState
    etag: str
    embedder: dict[str, Any]
