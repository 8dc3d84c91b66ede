"""Requests for captions: which documents have pictures to describe, and the job that does it."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from latent_core.domain.chunk import SourceType
from latent_core.domain.job import PRIORITY_LATER, JobKind, NewJob
from latent_core.domain.manifest.model import Manifest

MAX_ATTEMPTS: Final = 3
"""Each attempt at a slow picture is a paid call."""


class CaptionPayload(BaseModel):
    """Payload of a ``caption`` job."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    generation: int


def has_captions(manifest: Manifest, source_type: SourceType) -> bool:
    """Whether documents of this type get captions: images, and PDFs unless page extraction describes their visuals."""
    if not manifest.captions.enabled:
        return False
    return source_type is SourceType.IMAGE or (
        source_type is SourceType.PDF and not manifest.extraction.enabled
    )


def caption_job(container_id: str, doc_id: UUID, generation: int, *, principal: str) -> NewJob:
    return NewJob(
        kind=JobKind.CAPTION,
        container_id=container_id,
        doc_id=doc_id,
        doc_key=f"caption:{doc_id}",
        dedupe_key=f"caption:{doc_id}",
        payload=CaptionPayload(generation=generation).model_dump(mode="json"),
        priority=PRIORITY_LATER,
        max_attempts=MAX_ATTEMPTS,
        principal=principal,
    )
