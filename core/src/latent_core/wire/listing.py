"""The listing of a folder: its files, and those that the server needs."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from latent_core.domain.envelope import Envelope
from latent_core.wire.base import RequestBody
from latent_core.wire.fields import MAX_PATH


class ListedFile(RequestBody):
    path: Annotated[str, Field(min_length=1, max_length=MAX_PATH)]
    """Relative to the root, with ``/``."""
    bytes: Annotated[int, Field(ge=0)]
    mtime_ns: Annotated[int, Field(ge=0, lt=2**63)]
    sha256: Annotated[str | None, Field(pattern="^[0-9a-f]{64}$")] = None
    meta_sha256: Annotated[str | None, Field(pattern="^[0-9a-f]{64}$")] = None
    """Digest of its meta (``doc_meta.given_digest``); none without meta."""


class ListingBody(RequestBody):
    """A folder's files or a part of them: by the byte order of their paths, those after ``after`` up to ``through``."""

    root: Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^/\x00]+$")]
    files: Annotated[list[ListedFile], Field(max_length=200_000)]
    after: Annotated[str | None, Field(max_length=MAX_PATH, pattern=r"^[^\x00]*$")] = None
    through: Annotated[str | None, Field(max_length=MAX_PATH, pattern=r"^[^\x00]*$")] = None
    delete_vanished: bool = True
    """Delete stored documents of this part that are not listed."""
    count_vanished: bool = False
    """Only count them."""


class RefusedFile(BaseModel):
    """An unchanged file whose job failed permanently."""

    path: str
    reason: str
    job_id: int


class ListingAnswer(Envelope):
    """The files that the server needs. ``deleted`` has a limit: ``partial`` means that more are gone; list the part again."""

    need: list[str]
    hash: list[str]
    refused: list[RefusedFile]
    unchanged: int
    open_jobs: list[int]
    """Jobs of unchanged files that are not searchable yet."""
    vanished: int
    deleted: list[str]
    delete_jobs: list[int]
