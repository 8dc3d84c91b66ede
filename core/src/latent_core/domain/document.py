"""A document, one source in one container, and the meta of its sender."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import orjson
from pydantic import BaseModel

from latent_core.domain.errors import IngestFailed, Invalid
from latent_core.domain.manifest.custom_schema import CustomSchema, format_violations
from latent_core.domain.manifest.model import Manifest
from latent_core.domain.manifest.path_meta import path_meta


class DocumentState(StrEnum):
    PENDING = "pending"
    """Accepted, nothing visible yet."""
    LIVE = "live"
    DELETED = "deleted"


class Origin(StrEnum):
    """Where the content of a document comes from."""

    PERSON = "person"
    """A note or conversation that a person added."""
    AGENT = "agent"
    """A note or conversation that an agent added."""
    WEB = "web"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Author:
    """Who added the newest content of a document."""

    origin: Origin
    written_by: str
    """The principal."""
    token_name: str | None = None
    """None for the owner's own token."""
    session: str | None = None


class DocumentView(BaseModel):
    """A document as the surfaces show it."""

    doc_id: UUID
    container_id: str
    source_uri: str
    external_id: str | None = None
    parent_id: UUID | None = None
    title: str | None
    mime: str
    source_type: str | None
    state: DocumentState
    generation: int | None
    chunks: int
    pages: int = 0
    bytes: int | None
    sha256: str | None
    language: str | None = None
    modified_at: datetime | None
    first_fetched_at: datetime | None
    fetched_at: datetime | None
    updated_at: datetime
    origin: Origin = Origin.FILE
    written_by: str | None = None
    """The principal that added its newest content; None if it was not recorded."""
    token_name: str | None = None
    """The token that it used; None for the owner's own."""
    written_at: datetime | None = None
    session: str | None = None
    version: int = 1
    """Of a note: how many texts were accepted under its name."""
    superseded_by: UUID | None = None
    """A newer document that replaces what this one says."""
    superseded_at: datetime | None = None
    """Since then only searches with ``include_superseded`` find it."""
    expires_at: datetime | None = None
    restorable_until: datetime | None = None
    """Of a deleted document: until then it can be restored."""
    meta: dict[str, Any] = {}


def accepted_meta(manifest: Manifest, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The meta of a document before it is parsed; ``Invalid`` names the field that violates the schema."""
    combined = {**path_meta(manifest.ingest.meta_from_path, uri), **given}
    read, wrong = _schema(manifest).read(combined, whole=False)
    if wrong:
        raise Invalid(
            f"{format_violations(wrong)}; see metadata.custom_schema",
            fields=[v.field for v in wrong],
        )
    return read


def published_meta(
    manifest: Manifest, inside: Mapping[str, Any], combined: Mapping[str, Any]
) -> dict[str, Any]:
    """The whole meta of a document that is about to be published; ``IngestFailed`` names the field.

    ``inside`` is the meta in the file itself, ``combined`` the accepted meta.
    """
    read, wrong = _schema(manifest).read({**inside, **combined}, whole=True)
    if wrong:
        raise IngestFailed(
            f"{format_violations(wrong)}; see metadata.custom_schema",
            fields=[v.field for v in wrong],
        )
    return read


def given_digest(given: Mapping[str, Any]) -> str | None:
    """Digest by which client and server detect a change of the sender's meta; None without meta."""
    if not given:
        return None
    return hashlib.sha256(orjson.dumps(dict(given), option=orjson.OPT_SORT_KEYS)).hexdigest()


def _schema(manifest: Manifest) -> CustomSchema:
    return CustomSchema.of(manifest.metadata.custom_schema)
