"""What an import job carries, and how far it is."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pydantic import BaseModel, ConfigDict

from latent_core.domain.errors import Invalid


class Policy(StrEnum):
    """What becomes of a document that the container has already."""

    SKIP = "skip"
    REPLACE = "replace"
    NEWEST = "newest"
    """The one whose source was modified later; where that is not known, that was fetched later."""


def policy_of(asked: Policy | None, *, merge: bool) -> Policy:
    """``Invalid`` when one is asked for that would have no effect."""
    if asked is not None and not merge:
        raise Invalid(
            "policy says what becomes of documents that are there already: give merge, too, or leave it out"
        )
    return asked or Policy.SKIP


class ImportPayload(BaseModel):
    """What an import job carries, and how far it is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: str
    filename: str
    target: str
    """The container that takes it in."""
    merge: bool = False
    policy: Policy = Policy.SKIP
    next_batch: int = 0
    chunks_read: int = 0
    """Of all batches before it: the number of its first chunk."""
    documents: int = 0
    chunks: int = 0
    skipped: int = 0
    overtaken: int = 0
    """Documents that were deleted, or added anew, between their choice and the commit of their step."""
    embedded: int = 0
    lacking_blobs: int = 0
    """References to bytes that are neither in the archive nor here."""


FRESH: Final = {
    "next_batch": 0,
    "chunks_read": 0,
    "documents": 0,
    "chunks": 0,
    "skipped": 0,
    "overtaken": 0,
    "embedded": 0,
    "lacking_blobs": 0,
}
"""How far one is that begins."""
