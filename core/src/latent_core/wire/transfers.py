"""Exports, imports and backups: a container as one file."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

from latent_core.domain.ids import WireJobId
from latent_core.domain.job import ArchiveKind
from latent_core.wire.base import ContainerId, Envelope, PagedEnvelope, RequestBody
from latent_core.wire.jobs import JobAccepted


class ArchiveView(BaseModel):
    """An archive in API answers."""

    id: int
    kind: ArchiveKind
    container_id: str
    bucket: str = Field(default="", exclude=True)
    """Of the file; "" for the installation's own."""
    sha256: str
    bytes: int
    filename: str
    vectors: bool
    blobs: bool
    totals: dict[str, int]
    created_at: datetime
    verified_at: datetime | None


class ExportBody(RequestBody):
    container_id: ContainerId
    vectors: bool = True
    """Without them an import embeds everything again."""
    blobs: bool = True
    """Without them the file lists originals and page images but does not contain them."""


class ExportAnswer(Envelope):
    status: Literal["ready", "queued"]
    url: str | None = None
    """Link to the archive, valid for some minutes."""
    archive: ArchiveView | None = None
    job_id: WireJobId | None = None


class ArchiveAnswer(Envelope):
    url: str
    archive: ArchiveView


class ImportAnswer(Envelope):
    job_id: WireJobId
    status: Literal["queued"] = "queued"
    container_id: str
    """The container that the import writes to."""


class BackupBody(RequestBody):
    container_id: ContainerId


class BackupList(PagedEnvelope):
    backups: list[ArchiveView]


class BackupRemoved(JobAccepted):
    backup: ArchiveView
    """``job_id`` is the job that removes its bytes."""
