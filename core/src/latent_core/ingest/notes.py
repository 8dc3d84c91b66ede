"""Accept a note: one transaction writes it, keeps the text it replaces as a version, and enqueues their jobs.

Lock order: container → name of the note → documents by id. A former text becomes a document of its own, which is out
of search from the beginning; a predecessor that ``supersedes`` names goes out of search when the note is published.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from latent_core.db.connection import Connection
from latent_core.db.documents import notes
from latent_core.db.documents.documents import SourceInfo
from latent_core.db.documents.notes import NoteRow
from latent_core.domain.document import Author
from latent_core.domain.errors import Conflict, Forbidden, NotFound
from latent_core.domain.ids import JobId, document_id
from latent_core.domain.job import JobKind
from latent_core.domain.note import is_version, version_uri
from latent_core.ingest.accept import IngestPayload, PayloadAuthorship, accept

NEVER: Final = 0
"""``if_version`` of a note that must not exist yet."""


@dataclass(frozen=True, slots=True)
class NewNote:
    """A note that is about to be accepted. Its bytes are stored."""

    source: SourceInfo
    author: Author
    payload: IngestPayload
    sha256: str
    if_version: int | None = None
    """Accept only if this is the current version; ``NEVER``: only if there is none."""
    supersedes: UUID | None = None
    may_replace_others: bool = False
    continues: bool = False
    """Its content includes the former one: no version of that is kept."""


@dataclass(frozen=True, slots=True)
class AcceptedNote:
    doc_id: UUID
    job_id: JobId
    version: int
    replaced: UUID | None
    """The document that keeps the former text of this name."""
    superseded_by: UUID | None = None
    """The text was added before, and this document supersedes it: it stays out of search."""
    supersedes: tuple[str, ...] = ()
    """Uris of what goes out of search by it: the former text of its name, and the predecessor that was named."""


async def accept_note(conn: Connection, note: NewNote) -> AcceptedNote:
    """Accept the note in the caller's transaction, which holds its container.

    ``Conflict``: another version is current, or the predecessor has another successor; ``NotFound`` and ``Forbidden``:
    the predecessor does not exist here, or is somebody else's.
    """
    doc_id = note.source.doc_id
    rows = await notes.locked(conn, [doc_id, *_predecessor(note)], name=doc_id)
    current = rows.get(doc_id)
    exists = current is not None and current.deleted_at is None
    _check_version(note, current if exists else None)
    for predecessor in _predecessor(note):
        _check_predecessor(note, rows.get(predecessor), predecessor)
    same = exists and current is not None and current.accepted_sha256 == note.sha256
    version = current.version + (not same) if current is not None else 1
    replaced = None
    superseded = [rows[predecessor].uri for predecessor in _predecessor(note)]
    if current is not None and exists and not same and not note.continues:
        replaced = await _keep_former(conn, note, current)
        superseded += [version_uri(current.uri, current.version)] if replaced else []
    # The author of a text that is there already stays who first wrote it.
    writing = None if same else PayloadAuthorship.of(note.author, note.source.expires_at)
    accepted = await accept(
        conn,
        replace(note.source, author=note.author),
        note.payload.model_copy(update={"authorship": writing}),
        kind=JobKind.INGEST,
        principal=note.author.written_by,
    )
    await notes.note_accepted(conn, doc_id, version, note.sha256)
    if same:
        await notes.set_expiry(conn, doc_id, note.source.expires_at)
    for predecessor in _predecessor(note):
        await notes.point(conn, predecessor, doc_id, accepted.request)
    out = current.superseded_by if same and current is not None and current.superseded_at else None
    return AcceptedNote(doc_id, accepted.job_id, version, replaced, out, tuple(superseded))


def _predecessor(note: NewNote) -> list[UUID]:
    return [] if note.supersedes is None else [note.supersedes]


def _check_version(note: NewNote, current: NoteRow | None) -> None:
    if note.if_version is None:
        return
    found = NEVER if current is None else current.version
    if found == note.if_version:
        return
    if current is None:
        raise Conflict(
            f"if_version is {note.if_version}, but no note has this name: add it without if_version",
            version=NEVER,
        )
    raise Conflict(
        f"if_version is {note.if_version}, but version {found} is current, written by "
        f"'{current.written_by}' at {current.written_at:%Y-%m-%d %H:%M:%S} UTC: read document {current.id}, then "
        f"add the merged text with if_version {found}",
        version=found,
        doc_id=str(current.id),
    )


def _check_predecessor(note: NewNote, row: NoteRow | None, doc_id: UUID) -> None:
    if row is None or row.container_id != note.source.container_id or row.deleted_at is not None:
        raise NotFound(
            f"supersedes: container '{note.source.container_id}' has no document '{doc_id}'",
            doc_id=str(doc_id),
        )
    if row.id == note.source.doc_id:
        raise Conflict(
            "supersedes names this note itself: leave it out, its former text is kept anyway",
            doc_id=str(doc_id),
        )
    taken = row.has_successor and row.superseded_by != note.source.doc_id
    if is_version(row.uri) or taken:
        raise Conflict(
            f"document '{doc_id}' is already superseded by '{row.superseded_by}': supersede that one",
            doc_id=str(doc_id),
            superseded_by=str(row.superseded_by),
        )
    if row.written_by != note.author.written_by and not note.may_replace_others:
        raise Forbidden(
            f"document '{doc_id}' was not written by you: superseding it needs a token with scope 'delete'",
            doc_id=str(doc_id),
        )


async def _keep_former(conn: Connection, note: NewNote, former: NoteRow) -> UUID | None:
    """Keep the former text as a document, whether it is live or still waits to be ingested; returns its id."""
    if former.accepted_sha256 is None:
        return None
    uri = version_uri(former.uri, former.version)
    waiting = await notes.waiting(conn, former.id, former.accepted_sha256)
    known = note.payload if waiting is None else IngestPayload.model_validate(waiting)
    payload = known.model_copy(
        update={
            "uri": uri,
            "sha256": former.accepted_sha256,
            "meta": known.meta if waiting is not None else former.meta,
            "modified_at": former.source_modified_at,
            "request": 0,
            "rebuild": False,
            "authorship": None,
        }
    )
    container_id = note.source.container_id
    written = known.row_authorship if waiting is not None else None
    author = written.author if written is not None else former.author
    source = SourceInfo(container_id, uri, former.mime, author=author)
    kept = await accept(
        conn, source, payload, kind=JobKind.INGEST, principal=note.author.written_by
    )
    await notes.note_former(
        conn,
        kept.doc_id,
        version=former.version,
        sha256=former.accepted_sha256,
        written_at=written.at if written is not None else former.written_at,
        by=document_id(container_id, former.uri),
    )
    return kept.doc_id
