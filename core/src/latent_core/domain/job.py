"""Queued work, and the claim by which a worker holds it (DESIGN §8)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from latent_core.domain.errors import Issue
from latent_core.domain.ids import JobId


class JobKind(StrEnum):
    INGEST = "ingest"
    CORPUS = "corpus"
    """A JSONL corpus: commits in batches and requeues itself with a cursor."""
    RENDER = "render"
    PAGE_PDF = "page_pdf"
    """One page of a PDF as a file of its own, when somebody asks for it."""
    READ_IMAGE = "read_image"
    """The text of an uploaded picture that somebody searches by."""
    PURGE = "purge"
    """Remove what a superseded generation or a deleted document left in the stores."""
    COMPACT = "compact"
    GARBAGE = "garbage"
    """Remove blobs that nothing refers to any more, of whatever container."""
    DELETE_CONTAINER = "delete_container"
    DEDUP = "dedup"
    """Find the chunks of a container that repeat an earlier one."""
    REFRESH = "refresh"
    """Change the embedding space of a container, or make its vectors anew."""
    DROP_SPACE = "drop_space"
    """Remove an embedding space that is not searched any more, when it has been kept long enough."""
    EXPORT = "export"
    """Write a container into an archive, or read a kept one (a backup) to its end to verify it."""
    IMPORT = "import"
    EVAL = "eval"
    """Ask judged queries: claimed by the gateway, which is the one that searches (ADR 0010)."""


class JobState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


PRIORITY_NOW = 100
"""Somebody waits for it."""
PRIORITY_NORMAL = 0
PRIORITY_LATER = -10
"""Follow-ups that no reader waits for: render, purge, compact."""
NO_CONTAINER = ""
"""Where a job stands that works for all containers: none's deletion cancels it, none's listing shows it."""


@dataclass(frozen=True, slots=True)
class NewJob:
    """What a caller enqueues, in its own transaction."""

    kind: JobKind
    container_id: str
    doc_id: UUID | None = None
    doc_key: str | None = None
    """Jobs with the same key never run at the same time. Usually the document's id."""
    dedupe_key: str | None = None
    """A queued job with the same key is the same work: the newer payload replaces the older one's."""
    payload: dict[str, Any] = field(default_factory=dict)
    priority: int = PRIORITY_NORMAL
    delay_seconds: float = 0.0
    max_attempts: int = 5
    principal: str = "local:you"


@dataclass(frozen=True, slots=True)
class ClaimedJob:
    """A job as its worker holds it: every write of the worker is fenced by ``claim_id``."""

    id: JobId
    claim_id: int
    kind: JobKind
    container_id: str
    doc_id: UUID | None
    doc_key: str | None
    payload: dict[str, Any]
    attempts: int
    """This attempt included: 1 at the first claim."""
    max_attempts: int
    principal: str
    paused_seconds: float = 0.0
    """How long it had waited for services when it was claimed, its time in line not counted."""


class JobEmbedding(BaseModel):
    """What a job sent to a remote embedder."""

    texts: int
    tokens: int
    cost: float
    """By LLC_EMBED_PRICE_PER_MILLION."""


class JobView(BaseModel):
    """A job as the surfaces show it."""

    job_id: int
    kind: JobKind
    container_id: str
    doc_id: UUID | None
    source_uri: str | None = None
    state: JobState
    progress_done: int
    progress_total: int | None
    progress_note: str | None
    eta_seconds: float | None = None
    attempts: int
    max_attempts: int
    cause: Issue | None = None
    """Why it failed, or why it was last tried again."""
    warnings: list[Issue] = []
    result: dict[str, Any] | None = None
    """What it found or removed, of kinds that say so."""
    embedding: JobEmbedding | None = None
    cancel_requested: bool
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class JobEvent(BaseModel):
    """One line of a job's history."""

    id: int
    job_id: int
    at: datetime
    event: str
    details: dict[str, Any] = {}
