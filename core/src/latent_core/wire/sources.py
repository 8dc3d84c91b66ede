"""Requests and answers of the routes of sources."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final
from uuid import UUID

from pydantic import BaseModel, Field

from latent_core.domain.source import MAX_ROOT_CHARS
from latent_core.domain.text import Text
from latent_core.wire.base import MAX_PATH, Envelope, RequestBody

MAX_SAMPLE: Final = 2_000
"""Hashes of one comparison."""

SourceRoot = Annotated[Text, Field(min_length=1, max_length=MAX_ROOT_CHARS, pattern=r"^[^/\x00]+$")]
SourceHost = Annotated[Text, Field(min_length=1, max_length=255)]
SourceFolder = Annotated[Text, Field(min_length=1, max_length=MAX_PATH)]


class SourceView(BaseModel):
    """A folder that is synced into a container."""

    source_id: UUID
    root: str
    """Its documents are below ``file:///<root>/``."""
    host: str
    folder: str
    created_at: datetime
    synced_at: datetime | None
    """The last complete listing."""


class ListedSource(SourceView):
    documents: int
    """Without the records of corpora."""


class SourceList(Envelope):
    sources: list[ListedSource]


class ForgetSourceAnswer(Envelope):
    source: SourceView
    documents: int
    """Documents that stay searchable. No source owns them any more."""
    deleted: int
    """Documents that this call deleted."""
    delete_jobs: list[int]
    partial: bool
    """Further documents must be deleted first, and the source still exists: send the request again."""


class SourceAnswer(Envelope):
    source: SourceView


class SourceBody(RequestBody):
    """A folder that no source of the container is synced from."""

    root: SourceRoot
    """The root that it gets if it is free, else with ``~2``, ``~3``, and so on."""
    host: SourceHost
    folder: SourceFolder
    adopt: bool = False
    """Whether documents that are below ``root`` without a source become its own. Otherwise they make the root taken."""


class SourcePlaceBody(RequestBody):
    """The place from which a source is synced from now on."""

    host: SourceHost
    folder: SourceFolder


class SourceMatchBody(RequestBody):
    root: SourceRoot
    sha256: Annotated[
        list[Annotated[str, Field(pattern="^[0-9a-f]{64}$")]], Field(max_length=MAX_SAMPLE)
    ]
    """Hashes of files of the folder."""


class SourceMatch(BaseModel):
    """Documents below a root, and how many of the hashes are among them."""

    root: str
    source: SourceView | None
    """None: documents below the requested root that belong to no source."""
    documents: int
    same: int


class SourceMatches(Envelope):
    matches: list[SourceMatch]
