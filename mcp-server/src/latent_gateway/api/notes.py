"""Notes: texts that ``POST /v1/containers/add`` accepts instead of a source, and who wrote a document."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from latent_core.blobs.writer import store
from latent_core.db import audit
from latent_core.db.connection import Connection
from latent_core.db.documents import documents, notes
from latent_core.db.documents.documents import SourceInfo
from latent_core.domain.chunk import Modality
from latent_core.domain.conversation import CONVERSATION_MIME, append, read_conversation
from latent_core.domain.document import Author, accepted_meta, given_digest
from latent_core.domain.errors import Conflict, Forbidden, Invalid, Issue, IssueCode, LatentError
from latent_core.domain.ids import Sha256, document_id
from latent_core.domain.note import MAX_NAME_CHARS, MIME, is_note, markdown, name_of, note_uri
from latent_core.domain.origin import Origin
from latent_core.domain.text import trouble
from latent_core.domain.token import Scope
from latent_core.domain.versions import recipe
from latent_core.ingest.accept import IngestPayload
from latent_core.ingest.masking import mask, mask_conversation
from latent_core.ingest.notes import NEVER, AcceptedNote, NewNote, accept_note
from latent_core.runtime.failpoint import failpoint
from latent_core.telemetry.metrics import MaskedSource
from latent_core.wire.base import MAX_URI_BYTES
from latent_core.wire.documents import AddAnswer, AddBody, NearestNote
from latent_core.wire.search import SearchRequest
from latent_gateway.api.search import find
from latent_gateway.auth import access
from latent_gateway.auth.access import Writable
from latent_gateway.auth.principal import Principal
from latent_gateway.context import BlobLinks, Gateway

MAX_NEAREST: Final = 3
NEAREST_QUERY_CHARS: Final = 600
MAX_TRIES: Final = 10
"""To continue a conversation that others continue at the same time."""
AGENT: Final = "agent:"


def author_of(caller: Principal, uri: str, *, session: str | None) -> Author:
    """Who adds a document now."""
    return Author(_origin(caller, uri), caller.name, caller.token_name, session)


def _origin(caller: Principal, uri: str) -> Origin:
    if is_note(uri):
        return Origin.AGENT if caller.name.startswith(AGENT) else Origin.PERSON
    return Origin.WEB if uri.startswith(("http://", "https://")) else Origin.FILE


async def check_replaceable(
    conn: Connection, caller: Principal, container: Writable, uri: str
) -> None:
    """``Forbidden`` if the source is somebody else's document and the caller may not delete it. Adding a web
    page again only fetches it again."""
    if _origin(caller, uri) is Origin.WEB or Scope.DELETE in access.rights(caller, container):
        return
    found = await documents.view(conn, document_id(container.id, uri))
    if found is not None and found.written_by not in (None, caller.name):
        raise Forbidden(
            f"'{uri[:200]}' was added by '{found.written_by}': replacing it needs a token with scope 'delete', or "
            "another source_uri",
            doc_id=str(found.doc_id),
        )


@dataclass(frozen=True, slots=True)
class NoteContent:
    """What is stored for a note or a conversation, with its secrets masked."""

    data: bytes
    text: str
    """For the search of near notes."""
    mime: str
    filename: str
    masked: Mapping[str, int]
    source: MaskedSource
    name: str
    continues: bool = False
    if_version: int | None = None


async def accept_text(
    body: AddBody, shared: Gateway, caller: Principal, request_id: str, links: BlobLinks
) -> AddAnswer:
    """The note or conversation and its ingest job, once both are stored; with the nearest notes.

    A conversation is continued from the version that was read. If another one is stored meanwhile, it is read again.
    """
    _check(body)
    async with shared.stack.db.transaction() as conn:
        container = await access.writable(conn, caller, body.container_id)
        if Modality.TEXT not in container.manifest.modalities:
            raise Forbidden(f"container '{container.id}' accepts no text", modality="text")
        await shared.quotas.check_queue(conn, caller)
        await shared.stack.capacity.check(conn)
    content, answer = await _accepted_once_current(body, shared, caller, container, request_id)
    shared.stack.wake()
    for count in content.masked.values():
        shared.stack.metrics.masked.labels(content.source).inc(count)
    if Scope.READ not in access.rights(caller, container):
        return answer
    return await _with_nearest(
        shared, caller, request_id, links, content.text, answer, container.id
    )


async def _accepted_once_current(
    body: AddBody, shared: Gateway, caller: Principal, container: Writable, request_id: str
) -> tuple[NoteContent, AddAnswer]:
    for tries_left in reversed(range(MAX_TRIES)):
        content = await _content(body, shared, caller, container)
        try:
            return content, await _accepted(body, shared, caller, container, content, request_id)
        except Conflict:
            if not (content.continues and body.if_version is None and tries_left):
                raise
    raise AssertionError("the last try returns or raises")


async def _content(
    body: AddBody, shared: Gateway, caller: Principal, container: Writable
) -> NoteContent:
    if body.messages is not None:
        return await _conversation(body, shared, caller, container)
    text, masked = await asyncio.to_thread(mask, (body.text or "").strip())
    title = None if body.title is None else (await asyncio.to_thread(mask, body.title))[0]
    stored = markdown(title, text)
    return NoteContent(
        stored.encode(),
        stored,
        MIME,
        (title or body.name or _first_line(text))[:MAX_NAME_CHARS],
        masked,
        "note",
        body.name or name_of(stored),
        if_version=body.if_version,
    )


async def _conversation(
    body: AddBody, shared: Gateway, caller: Principal, container: Writable
) -> NoteContent:
    """The whole conversation: what is stored under its name, continued by the new messages."""
    given = read_conversation(
        {"title": body.title, "session": body.session, "messages": body.messages}
    )
    new, masked = await asyncio.to_thread(mask_conversation, given)
    name = body.name or body.session or name_of(new.encode().decode())
    doc_id = document_id(container.id, note_uri(caller.name, name))
    async with shared.stack.db.reading() as conn:
        found = await notes.current(conn, doc_id)
    whole, version = new, NEVER
    if found is not None:
        if found.mime != CONVERSATION_MIME:
            raise Conflict(f"'{name}' is a note: give the conversation another name")
        store_ = shared.stack.blobs.of(container.bucket)
        stored = await store_.get(Sha256(found.accepted_sha256))
        whole, version = append(read_conversation(stored), new), found.version
    last = whole.messages[-1]
    return NoteContent(
        whole.encode(),
        last.content,
        CONVERSATION_MIME,
        f"{(whole.title or name)[:MAX_NAME_CHARS]}.json",
        masked,
        "conversation",
        name,
        continues=True,
        if_version=version if body.if_version is None else body.if_version,
    )


async def _accepted(
    body: AddBody,
    shared: Gateway,
    caller: Principal,
    container: Writable,
    content: NoteContent,
    request_id: str,
) -> AddAnswer:
    uri = note_uri(caller.name, content.name)
    if len(uri.encode()) > MAX_URI_BYTES:
        raise Invalid(f"name '{content.name[:80]}…' is too long")
    async with shared.stack.db.reading() as conn:
        await shared.quotas.bytes_left(conn, caller, len(content.data))
    sha256 = await store(shared.stack.db, shared.stack.blobs.of(container.bucket), content.data)
    payload = IngestPayload(
        uri=uri,
        filename=content.filename,
        mime=content.mime,
        sha256=sha256,
        modality="text",
        accepted_at=datetime.now(UTC),
        modified_at=body.modified_at,
        meta=accepted_meta(container.manifest, uri, body.meta),
        given_meta=given_digest(body.meta),
        recipe=recipe(container.manifest),
        masked=sum(content.masked.values()),
    )
    async with shared.stack.db.transaction() as conn:
        await access.held(conn, container)
        note = NewNote(
            SourceInfo(container.id, uri, content.mime, expires_at=body.expires_at),
            author_of(caller, uri, session=body.session),
            payload,
            sha256,
            if_version=content.if_version,
            supersedes=body.supersedes,
            may_replace_others=Scope.DELETE in access.rights(caller, container),
            continues=content.continues,
        )
        accepted = await accept_note(conn, note)
        await shared.quotas.take_note(conn, caller, len(content.data))
        await audit.note(
            conn,
            principal=caller.name,
            token_id=caller.token_id,
            action="document.add",
            container_id=container.id,
            object_=uri,
            request_id=request_id,
        )
        await audit.note_each(
            conn,
            principal=caller.name,
            token_id=caller.token_id,
            action="document.supersede",
            container_id=container.id,
            objects=accepted.supersedes,
            request_id=request_id,
        )
        failpoint("note.before_commit")
    failpoint("note.after_commit")
    return AddAnswer(
        job_id=accepted.job_id,
        doc_id=accepted.doc_id,
        source_uri=uri,
        note_version=accepted.version,
        replaced=accepted.replaced,
        masked=dict(content.masked),
        issues=_superseded(accepted),
    )


def _superseded(accepted: AcceptedNote) -> list[Issue]:
    if accepted.superseded_by is None:
        return []
    message = f"this text was added before and is superseded by document '{accepted.superseded_by}': searches do not find it"
    return [Issue(code=IssueCode.CONFLICT, message=message)]


def _check(body: AddBody) -> None:
    if (body.text is None) == (body.messages is None):
        raise Invalid("give either text or messages, not both")
    for field, value in (("text", body.text), ("title", body.title)):
        wrong = None if value is None else trouble(value, layout=field == "text")
        if wrong is not None:
            raise Invalid(f"{field} {wrong}")
    if body.text is not None and not body.text.strip():
        raise Invalid("text is empty")
    if body.password is not None:
        raise Invalid("password is only for files: leave it out")
    if body.uri or body.file_ref or body.source_uri or body.filename:
        raise Invalid("give either text or a source (uri, file_ref), not both")
    if body.expires_at is not None and body.expires_at <= datetime.now(UTC):
        raise Invalid(f"expires_at: {body.expires_at.isoformat()} has passed")


def _first_line(text: str) -> str:
    line = text.splitlines()[0].lstrip("#*->` ").strip()
    return line[:80] or "note"


async def _with_nearest(
    shared: Gateway,
    caller: Principal,
    request_id: str,
    links: BlobLinks,
    text: str,
    answer: AddAnswer,
    container_id: str,
) -> AddAnswer:
    """The answer with up to three notes that are nearest in meaning. If the search fails, the note is stored anyway, and
    an issue says so."""
    request = SearchRequest(
        containers=[container_id],
        query=text[:NEAREST_QUERY_CHARS],
        top_k=MAX_NEAREST + 1,
        filters={"origin": [Origin.PERSON.value, Origin.AGENT.value]},
        diagnostics=False,
    )
    try:
        # A text of many words needs none of them corrected.
        found = await find(request, shared, caller, request_id, links, logged=False, corrects=False)
    except LatentError as error:
        issue = Issue(
            code=error.code, message=f"the nearest notes were not looked up: {error.message}"
        )
        return answer.model_copy(update={"issues": [*answer.issues, issue]})
    nearest = [
        NearestNote(
            doc_id=hit.doc_id, title=hit.title, written_at=hit.written_at, written_by=hit.written_by
        )
        for hit in found.hits
        if hit.doc_id != answer.doc_id
    ]
    return answer.model_copy(update={"nearest": nearest[:MAX_NEAREST]})
