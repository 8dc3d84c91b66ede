"""The text of an uploaded picture, read by OCR when somebody searches by it."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict

from latent_core.db.connection import Connection
from latent_core.db.uploads import Upload
from latent_core.domain.ids import JobId
from latent_core.domain.job import PRIORITY_NOW, JobKind, NewJob
from latent_core.queue.enqueue import enqueue

MAX_CHARS: Final = 2_000
"""Of a picture's text that are asked for: embedders read little more, and ranking by thousands of words says nothing."""
MAX_ATTEMPTS: Final = 2


class ReadImagePayload(BaseModel):
    """What a job of kind ``read_image`` is told."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: str
    filename: str


async def request_reading(conn: Connection, upload: Upload, *, principal: str) -> JobId:
    """Enqueue the job that reads it; somebody waits. The same bytes are read by one job at a time."""
    payload = ReadImagePayload(sha256=upload.sha256, filename=upload.filename)
    return await enqueue(
        conn,
        NewJob(
            kind=JobKind.READ_IMAGE,
            container_id=upload.container_id,
            doc_key=f"read_image:{upload.sha256}",
            # A container's own: with it go its jobs, which others may be waiting for.
            dedupe_key=f"read_image:{upload.container_id}:{upload.sha256}",
            payload=payload.model_dump(mode="json"),
            priority=PRIORITY_NOW,
            max_attempts=MAX_ATTEMPTS,
            principal=principal,
        ),
    )
