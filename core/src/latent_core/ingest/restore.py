"""Restore a deleted document, or give up what is kept for that.

A deletion removes everything but the newest bytes; restoring ingests these again. The former texts of a note are
deleted and restored with it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import unquote, urlsplit

from latent_core.db.connection import Connection
from latent_core.db.documents import notes, trash
from latent_core.db.documents.documents import SourceInfo
from latent_core.db.documents.trash import DeletedDocument
from latent_core.domain.ids import JobId
from latent_core.domain.job import PRIORITY_NORMAL, JobKind
from latent_core.domain.note import is_note, versions_prefix
from latent_core.ingest.accept import AcceptedSource, IngestPayload, accept
from latent_core.ingest.delete import enqueue_purges

DAYS: Final = 30
"""A deleted document can be restored for so long."""


async def restore(
    conn: Connection, document: DeletedDocument, recipe: str, *, principal: str
) -> AcceptedSource:
    """Accept the kept bytes again, in the caller's transaction, which holds the container."""
    former: list[DeletedDocument] = []
    if is_note(document.uri):
        former = await trash.versions(conn, document, versions_prefix(document.uri))
    accepted = await _accept(conn, document, recipe, principal)
    for one in former:
        await _accept(conn, one, recipe, principal)
        await notes.note_former(
            conn,
            one.id,
            version=one.version,
            sha256=one.accepted_sha256,
            written_at=one.written_at,
            by=document.id,
        )
    return accepted


async def _accept(
    conn: Connection, document: DeletedDocument, recipe: str, principal: str
) -> AcceptedSource:
    payload = IngestPayload(
        uri=document.uri,
        filename=_filename(document),
        mime=document.mime,
        sha256=document.accepted_sha256,
        accepted_at=datetime.now(UTC),
        modified_at=document.source_modified_at,
        meta=document.meta,
        given_meta=document.given_meta,
        recipe=recipe,
    )
    source = SourceInfo(document.container_id, document.uri, document.mime)
    return await accept(conn, source, payload, kind=JobKind.INGEST, principal=principal)


def _filename(document: DeletedDocument) -> str:
    """Parsers choose by its ending."""
    if is_note(document.uri):
        return document.title or "note"
    return PurePosixPath(unquote(urlsplit(document.uri).path)).name or document.title or "document"


async def give_up(
    conn: Connection, document: DeletedDocument, *, principal: str, lease_seconds: float
) -> JobId:
    """Remove also what is kept for restoring; returns the purge, which reports what it removed."""
    ids = [document.id]
    if is_note(document.uri):
        former = await trash.versions(conn, document, versions_prefix(document.uri))
        ids += [one.id for one in former]
    below = await trash.empty(conn, ids)
    return await enqueue_purges(
        conn,
        document.container_id,
        below=sorted(below),
        principal=principal,
        lease_seconds=lease_seconds,
        priority=PRIORITY_NORMAL,
        forget=True,
    )
