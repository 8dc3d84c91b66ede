"""Jobs, and the claim of a worker on a job (DESIGN §8); and the kinds of archives."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Literal
from uuid import UUID

from pydantic import BaseModel

from latent_core.domain.errors import Issue
from latent_core.domain.ids import JobId, WireJobId


class JobKind(StrEnum):
    INGEST = "ingest"
    CORPUS = "corpus"
    """A JSONL corpus: commits in batches and requeues itself with a cursor."""
    RENDER = "render"
    PAGE_PDF = "page_pdf"
    """Make a PDF of one page, on request."""
    PAGE_WORDS = "page_words"
    """Read the words of one page with their boxes, on request."""
    EXTRACT = "extract"
    """Have the pages of a document described by a language model."""
    DROP_GENERATED = "drop_generated"
    """Remove what language models wrote about documents."""
    EMBED_GENERATED = "embed_generated"
    """Write lost vectors of generated chunks again."""
    CAPTION = "caption"
    """Have the pictures of a document described by a language model."""
    READ_IMAGE = "read_image"
    """Read the text of a picture that was uploaded for a search."""
    PURGE = "purge"
    """Remove the stored data of superseded generations and deleted documents."""
    COMPACT = "compact"
    GARBAGE = "garbage"
    """Remove blobs without a reference, of all containers."""
    DELETE_CONTAINER = "delete_container"
    DEDUP = "dedup"
    """Find the chunks of a container that repeat an earlier one."""
    REFRESH = "refresh"
    """Change the embedding space of a container, or compute its vectors again."""
    DROP_SPACE = "drop_space"
    """Remove a retired embedding space after its retention time."""
    EXPORT = "export"
    """Write a container into an archive, or verify a backup by reading it to its end."""
    IMPORT = "import"
    SUMMARISE = "summarise"
    """Have a language model write the summary of a document."""
    EVAL = "eval"
    """Run judged queries and measure their results."""


class JobState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


INTERNAL_KINDS: Final = frozenset(
    {
        JobKind.RENDER,
        JobKind.EMBED_GENERATED,
        JobKind.READ_IMAGE,
        JobKind.PAGE_WORDS,
        JobKind.PURGE,
        JobKind.COMPACT,
        JobKind.GARBAGE,
        JobKind.DEDUP,
        JobKind.DROP_SPACE,
    }
)
"""Jobs that no person requests: they follow from others."""


Outcome = Literal["done", "failed", "retried", "paused", "cancelled", "lost"]
"""How an attempt at a job ends. ``failed``: permanently. ``retried``: queued again, counted as an attempt. ``paused``:
queued again, not counted, since the job is not the cause. ``cancelled``: by request or superseded by a newer job.
``lost``: another worker may hold the job."""

PRIORITY_NOW = 100
"""A user waits for it."""
PRIORITY_NORMAL = 0
PRIORITY_LATER = -10
"""Follow-ups that no user waits for: render, purge, compact."""
NO_CONTAINER = ""
"""Container id of jobs for all containers: no deletion of a container cancels them, no container's listing shows them."""


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job that a caller enqueues in its transaction."""

    kind: JobKind
    container_id: str
    doc_id: UUID | None = None
    doc_key: str | None = None
    """Jobs with the same key never run at the same time. Usually the document's id."""
    dedupe_key: str | None = None
    """A queued job with the same key does the same work: the newer payload replaces the older one."""
    payload: dict[str, Any] = field(default_factory=dict)
    priority: int = PRIORITY_NORMAL
    delay_seconds: float = 0.0
    max_attempts: int = 5
    principal: str = "local:you"


@dataclass(frozen=True, slots=True)
class ClaimedJob:
    """A claimed job: ``claim_id`` fences every write of its worker."""

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
    """Seconds it had waited for services before this claim, without its time in the queue."""
    batch_id: int | None = None
    """Jobs that it enqueues belong to the same batch."""


class JobEmbedding(BaseModel):
    """Usage of a remote embedder by a job."""

    texts: int
    tokens: int
    cost: float
    """By LLC_EMBED_PRICE_PER_MILLION."""


class JobLanguageModels(BaseModel):
    """Usage of language models by a job."""

    calls: int
    """Answers that were stored before are not among them."""
    input_tokens: int
    output_tokens: int
    cost: float
    """By the prices of the providers."""


class JobView(BaseModel):
    """A job in API answers."""

    job_id: WireJobId
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
    """Why it failed or was last retried."""
    warnings: list[Issue] = []
    result: dict[str, Any] | None = None
    """Result of the kinds of job that have one."""
    embedding: JobEmbedding | None = None
    language_models: JobLanguageModels | None = None
    cancel_requested: bool
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class JobCounts(BaseModel):
    """Numbers of jobs by state; 1001 means more than 1000."""

    queued: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def open(self) -> int:
        return self.queued + self.running

    @property
    def total(self) -> int:
        return self.open + self.done + self.failed + self.cancelled


class JobGroup(BaseModel):
    """What a person requested, with all jobs that follow from it."""

    group_id: WireJobId
    kind: JobKind
    """Of its first job."""
    container_id: str
    principal: str
    created_at: datetime
    jobs: JobCounts
    """Those that were requested. Ended ones are kept for up to a day, failed ones for a month."""
    followers: JobCounts
    """Those that other jobs of the group enqueued, such as page images after an ingest. Most of the done ones are deleted
    ten minutes after their end, once no job of the group is open."""
    lead: JobView | None
    """A running one of those that were requested, else the first."""
    cause: Issue | None
    """Of the first failed job, else why the lead was retried last."""

    @property
    def state(self) -> JobState:
        """Of the requested jobs together: open ones first, then failures."""
        jobs = self.jobs if self.jobs.total else self.followers
        for state in (JobState.RUNNING, JobState.QUEUED, JobState.FAILED, JobState.DONE):
            if getattr(jobs, state.value):
                return state
        return JobState.CANCELLED


class JobEvent(BaseModel):
    """One line of a job's history."""

    id: int
    job_id: WireJobId
    at: datetime
    event: str
    details: dict[str, Any] = {}


class ArchiveKind(StrEnum):
    EXPORT = "export"
    BACKUP = "backup"
    IMPORT = "import"
