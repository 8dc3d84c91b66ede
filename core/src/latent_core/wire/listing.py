"""The listing of a folder: its files, and what the server needs of them."""

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
    """Of the meta it would be added with (``doc_meta.given_digest``); none without meta."""


class ListingBody(RequestBody):
    """A folder's files, or one part of them: in bytewise order of their paths, those after ``after`` up to ``through``."""

    root: Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^/\x00]+$")]
    files: Annotated[list[ListedFile], Field(max_length=200_000)]
    after: Annotated[str | None, Field(max_length=MAX_PATH, pattern=r"^[^\x00]*$")] = None
    through: Annotated[str | None, Field(max_length=MAX_PATH, pattern=r"^[^\x00]*$")] = None
    delete_vanished: bool = True
    """Delete what is stored in the part and not listed."""
    count_vanished: bool = False
    """Or only count it."""


class RefusedFile(BaseModel):
    """A file that was added as it is now, and whose job failed for good."""

    path: str
    reason: str
    job_id: int


class ListingAnswer(Envelope):
    """What a folder lacks. ``deleted`` is bounded: ``partial`` says that more vanished; list the part again."""

    need: list[str]
    hash: list[str]
    refused: list[RefusedFile]
    unchanged: int
    open_jobs: list[int]
    """Of unchanged files that were sent before and are not searchable yet."""
    vanished: int
    deleted: list[str]
    delete_jobs: list[int]
