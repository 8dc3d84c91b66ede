"""Containers: list, describe, create, update, state."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from latent_core.domain.golden import GoldenSet
from latent_core.wire.base import Envelope, PagedEnvelope, RequestBody


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
    missing: str | None = None
    """Why searches use keywords only, with the remedy: what the embedder needs on this machine."""


class ContainerSizes(BaseModel):
    """Live contents only. ``bytes`` counts originals: a corpus counts with its file, its records do not count."""

    documents: int
    pending_documents: int
    failed_documents: int = 0
    """Documents of which nothing is searchable, because their jobs failed."""
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


class ContainerList(PagedEnvelope):
    containers: list[ContainerSummary]
    next_cursor: str | None = None


class DescribedContainer(Envelope, ContainerDescription):
    pass


class ManifestBody(RequestBody):
    manifest: dict[str, Any]


class NewContainerBody(ManifestBody):
    golden: GoldenSet | None = None
    """Golden queries of the new container."""


class ContainerCreated(Envelope):
    container: ContainerSummary
    etag: str
    files: list[str]
    """Names of the files written into the manifest folder."""


class ContainerUpdated(Envelope):
    container: ContainerSummary
    etag: str
    changed: bool


class StateBody(RequestBody):
    state: ContainerState


class ContainerStateAnswer(Envelope):
    container: ContainerSummary
    changed: bool
