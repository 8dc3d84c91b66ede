"""The text of an uploaded picture, read by OCR for a search by image."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict

from latent_core.db.connection import Connection
from latent_core.db.uploads import Upload
from latent_core.domain.ids import JobId
from latent_core.domain.job import PRIORITY_NOW, JobKind, NewJob
from latent_core.queue.enqueue import enqueue

MAX_CHARS: Final = 2_000
"""Limit of a picture's text in a query: embedders read little more, and thousands of words do not help ranking."""
MAX_ATTEMPTS: Final = 2


class ReadImagePayload(BaseModel):
    """Payload of a ``read_image`` job."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: str
    filename: str


async def request_reading(conn: Connection, upload: Upload, *, principal: str) -> JobId:
    """Enqueue the job that reads it, at top priority. One job at a time reads the same bytes."""
    payload = ReadImagePayload(sha256=upload.sha256, filename=upload.filename)
    return await enqueue(
        conn,
        NewJob(
            kind=JobKind.READ_IMAGE,
            container_id=upload.container_id,
            doc_key=f"read_image:{upload.sha256}",
            # Per container: deleting a container removes its jobs, and another container may wait for the same bytes.
            dedupe_key=f"read_image:{upload.container_id}:{upload.sha256}",
            payload=payload.model_dump(mode="json"),
            priority=PRIORITY_NOW,
            max_attempts=MAX_ATTEMPTS,
            principal=principal,
        ),
    )
