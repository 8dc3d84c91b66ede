"""Jobs that follow the publication of a document, as its container's manifest has them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from latent_core.domain.chunk import SourceType
from latent_core.domain.job import NewJob
from latent_core.domain.manifest.model import Manifest
from latent_core.ingest.captions import caption_job, has_captions
from latent_core.ingest.extraction import EXTRACTED, ExtractPayload, extract_job
from latent_core.ingest.summaries import SummarisePayload, summarise_job


@dataclass(frozen=True, slots=True)
class PublishedDocument:
    """A document whose generation becomes visible."""

    doc_id: UUID
    generation: int
    source_type: SourceType
    is_record: bool
    """Of a corpus, an export of conversations or a mailbox: it has no file and no pages."""
    principal: str
    """Who requested the ingest."""


FollowUp = Callable[[Manifest, PublishedDocument], NewJob | None]


def extraction(manifest: Manifest, document: PublishedDocument) -> NewJob | None:
    """The description of its pages, unless it has none of its own."""
    if not manifest.extraction.enabled or document.is_record:
        return None
    if document.source_type not in EXTRACTED:
        return None
    payload = ExtractPayload(generation=document.generation)
    return extract_job(manifest.id, document.doc_id, payload, principal=document.principal)


def summary(manifest: Manifest, document: PublishedDocument) -> NewJob | None:
    """Its summary. Records of a corpus can be a million: they are summarised on request."""
    if not manifest.summaries.enabled or document.is_record:
        return None
    payload = SummarisePayload(generation=document.generation)
    return summarise_job(manifest.id, document.doc_id, payload, principal=document.principal)


def captions(manifest: Manifest, document: PublishedDocument) -> NewJob | None:
    """Captions of its pictures."""
    if document.is_record or not has_captions(manifest, document.source_type):
        return None
    return caption_job(
        manifest.id, document.doc_id, document.generation, principal=document.principal
    )


FOLLOW_UPS: Final[tuple[FollowUp, ...]] = (extraction, summary, captions)
"""Each decides by the manifest whether its job follows. Jobs of one dedupe key coalesce, and each job checks the
manifest again when it begins."""


def followups_of(manifest: Manifest, document: PublishedDocument) -> list[NewJob]:
    """The jobs to enqueue in the transaction that publishes ``document``."""
    jobs = [follow_up(manifest, document) for follow_up in FOLLOW_UPS]
    return [job for job in jobs if job is not None]
