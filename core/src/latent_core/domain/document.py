"""A document, one source in one container, and the meta of its sender."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

import orjson
from pydantic import BaseModel

from latent_core.domain.errors import IngestFailed, Invalid, Issue, IssueCode
from latent_core.domain.ids import WireJobId
from latent_core.domain.job import JobState
from latent_core.domain.manifest.custom_schema import CustomSchema, format_violations
from latent_core.domain.manifest.model import Manifest
from latent_core.domain.manifest.path_meta import path_meta
from latent_core.domain.origin import Origin


class DocumentState(StrEnum):
    PENDING = "pending"
    """Accepted, nothing visible yet: a job works on it or will."""
    LIVE = "live"
    FAILED = "failed"
    """Nothing visible, and no job works on it: ``failure`` says why."""
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Author:
    """Who added the newest content of a document."""

    origin: Origin
    written_by: str
    """The principal."""
    token_name: str | None = None
    """None for the owner's own token."""
    session: str | None = None


class DocumentFailure(BaseModel):
    """Why the newest content of a document is not searchable."""

    code: IssueCode
    cause: str
    remedy: str
    job_id: WireJobId | None = None
    """The job that failed; None if it is no longer recorded."""
    at: datetime | None = None


class NewestJob(BaseModel):
    """The newest job that was to make a document's content searchable."""

    id: int
    state: JobState
    cause: Issue | None
    finished_at: datetime | None


RETRIED: Final = frozenset({IssueCode.UNAVAILABLE, IssueCode.TIMEOUT, IssueCode.RATE_LIMIT})
"""Codes after which the same bytes may succeed."""


def failure_of(state: DocumentState, job: NewestJob | None) -> DocumentFailure | None:
    """The failure of a document in ``state``; a live one has one if its newest content failed."""
    ended = job is not None and job.state in (JobState.FAILED, JobState.CANCELLED)
    if job is None or not ended:
        if state is not DocumentState.FAILED:
            return None
        cause = "Nothing of this document is stored, and its job is no longer recorded."
        return DocumentFailure(code=IssueCode.INGEST_FAIL, cause=cause, remedy="Add it again.")
    if job.state is JobState.CANCELLED and state is DocumentState.LIVE:
        return None
    again = f"latent jobs requeue {job.id}"
    if job.state is JobState.CANCELLED:
        issue = Issue(code=IssueCode.CONFLICT, message="Its job was cancelled.")
        remedy = f"Add it again, or run `{again}`."
    elif job.cause is not None and job.cause.code in RETRIED:
        issue, remedy = job.cause, f"Run `{again}` when the cause is gone."
    else:
        issue = job.cause or Issue(code=IssueCode.INGEST_FAIL, message="Its job failed.")
        remedy = f"Correct the source and add it again, or delete the document. `{again}` tries the same bytes."
    return DocumentFailure(
        code=issue.code, cause=issue.message, remedy=remedy, job_id=job.id, at=job.finished_at
    )


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
    failure: DocumentFailure | None = None
    """Of its newest content; of a live document too, whose former content stays searchable."""
    generation: int | None
    chunks: int
    generated_chunks: int = 0
    """Of ``chunks``, those that a language model wrote."""
    pages: int = 0
    bytes: int | None
    sha256: str | None
    language: str | None = None
    modified_at: datetime | None
    first_fetched_at: datetime | None
    fetched_at: datetime | None
    updated_at: datetime
    origin: Origin = Origin.FILE
    written_by: str | None = None
    """The principal that added its newest content; None if it was not recorded."""
    token_name: str | None = None
    """The token that it used; None for the owner's own."""
    written_at: datetime | None = None
    session: str | None = None
    version: int = 1
    """Of a note: how many texts were accepted under its name."""
    superseded_by: UUID | None = None
    """A newer document that replaces what this one says."""
    superseded_at: datetime | None = None
    """Since then only searches with ``include_superseded`` find it."""
    expires_at: datetime | None = None
    restorable_until: datetime | None = None
    """Of a deleted document: until then it can be restored."""
    meta: dict[str, Any] = {}


def accepted_meta(manifest: Manifest, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The meta of a document before it is parsed; ``Invalid`` names the field that violates the schema."""
    combined = {**path_meta(manifest.ingest.meta_from_path, uri), **given}
    read, wrong = _schema(manifest).read(combined, whole=False)
    if wrong:
        raise Invalid(
            f"{format_violations(wrong)}; see metadata.custom_schema",
            fields=[v.field for v in wrong],
        )
    return read


def published_meta(
    manifest: Manifest, inside: Mapping[str, Any], combined: Mapping[str, Any]
) -> dict[str, Any]:
    """The whole meta of a document that is about to be published; ``IngestFailed`` names the field.

    ``inside`` is the meta in the file itself, ``combined`` the accepted meta.
    """
    read, wrong = _schema(manifest).read({**inside, **combined}, whole=True)
    if wrong:
        raise IngestFailed(
            f"{format_violations(wrong)}; see metadata.custom_schema",
            fields=[v.field for v in wrong],
        )
    return read


def given_digest(given: Mapping[str, Any]) -> str | None:
    """Digest by which client and server detect a change of the sender's meta; None without meta."""
    if not given:
        return None
    return hashlib.sha256(orjson.dumps(dict(given), option=orjson.OPT_SORT_KEYS)).hexdigest()


def _schema(manifest: Manifest) -> CustomSchema:
    return CustomSchema.of(manifest.metadata.custom_schema)
