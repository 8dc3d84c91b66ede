"""What a changed manifest would do to its container."""

from __future__ import annotations

from pydantic import BaseModel

from latent_core.domain.manifest.changes import ChangeEffect, ManifestChange
from latent_core.wire.base import Envelope
from latent_core.wire.refresh import RefreshRequest


class PlannedChange(ManifestChange):
    """A key that differs, and what the difference does."""

    effect: ChangeEffect
    documents: int = 0
    """Stored documents that do not follow the change until they are read or embedded again."""


class ManifestPlan(BaseModel):
    """The plan of an apply. Nothing is changed by it."""

    container_id: str
    etag: str
    """Of the manifest in force, for ``If-Match``."""
    effect: ChangeEffect | None
    """The strongest one; None if nothing changes."""
    changes: list[PlannedChange]
    refused: list[str]
    """Why apply would refuse the manifest; a refresh can make it possible."""
    refresh: RefreshRequest | None
    """The refresh that makes stored documents follow; None if there is nothing to do."""
    documents: int
    """Stored documents that it reads or embeds again."""
    chunks: int
    """Of these documents."""
    texts: int
    """At most so many texts are sent to the embedder."""
    tokens: int
    """Of these texts."""
    cached: int
    """Chunks whose vectors are in the cache."""
    cost: float | None
    """At most, by the price of the embedder; None if its price is not known. A local embedder costs 0."""
    seconds: float | None
    """Duration of that refresh; None if it cannot be estimated."""
    basis: str
    """Source of the duration."""
    notes: list[str] = []


class ManifestPlanAnswer(Envelope):
    plan: ManifestPlan
