"""Notes: texts that ``POST /v1/containers/add`` accepts instead of a source, and who wrote a document."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from latent_core.blobs.writer import store
from latent_core.db import audit
from latent_core.db.connection import Connection
from latent_core.db.documents import documents
from latent_core.db.documents.documents import SourceInfo
from latent_core.domain.chunk import Modality
from latent_core.domain.document import Author, Origin, accepted_meta, given_digest
from latent_core.domain.errors import Forbidden, Invalid, Issue, IssueCode, LatentError
from latent_core.domain.ids import document_id
from latent_core.domain.note import MIME, is_note, markdown, name_of, note_uri
from latent_core.domain.text import trouble
from latent_core.domain.token import Scope
from latent_core.domain.versions import recipe
from latent_core.ingest.accept import IngestPayload
from latent_core.ingest.notes import AcceptedNote, NewNote, accept_note
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


async def accept_text(
    body: AddBody, shared: Gateway, caller: Principal, request_id: str, links: BlobLinks
) -> AddAnswer:
    """The note and its ingest job, once both are stored; with the nearest notes."""
    text = _checked(body)
    note_text = markdown(body.title, text)
    size = len(note_text.encode())
    async with shared.stack.db.transaction() as conn:
        container = await access.writable(conn, caller, body.container_id)
        if Modality.TEXT not in container.manifest.modalities:
            raise Forbidden(f"container '{container.id}' accepts no text", modality="text")
        await shared.quotas.check_queue(conn, caller)
        await shared.stack.capacity.check(conn)
        await shared.quotas.bytes_left(conn, caller, size)
    sha256 = await store(
        shared.stack.db, shared.stack.blobs.of(container.bucket), note_text.encode()
    )
    name = body.name or name_of(note_text)
    uri = note_uri(caller.name, name)
    if len(uri.encode()) > MAX_URI_BYTES:
        raise Invalid(f"name '{name[:80]}…' is too long")
    payload = IngestPayload(
        uri=uri,
        filename=f"{body.title or body.name or _first_line(text)}"[:200],
        mime=MIME,
        sha256=sha256,
        modality="text",
        accepted_at=datetime.now(UTC),
        modified_at=body.modified_at,
        meta=accepted_meta(container.manifest, uri, body.meta),
        given_meta=given_digest(body.meta),
        recipe=recipe(container.manifest),
    )
    async with shared.stack.db.transaction() as conn:
        await access.held(conn, container)
        note = NewNote(
            SourceInfo(container.id, uri, MIME, expires_at=body.expires_at),
            author_of(caller, uri, session=body.session),
            payload,
            sha256,
            if_version=body.if_version,
            supersedes=body.supersedes,
            may_replace_others=Scope.DELETE in access.rights(caller, container),
        )
        accepted = await accept_note(conn, note)
        await shared.quotas.take_note(conn, caller, size)
        await audit.note(
            conn,
            principal=caller.name,
            action="document.add",
            container_id=container.id,
            object_=uri,
            request_id=request_id,
        )
    shared.stack.wake()
    answer = AddAnswer(
        job_id=accepted.job_id,
        doc_id=accepted.doc_id,
        source_uri=uri,
        note_version=accepted.version,
        replaced=accepted.replaced,
        issues=_superseded(accepted),
    )
    if Scope.READ not in access.rights(caller, container):
        return answer
    return await _with_nearest(shared, caller, request_id, links, note_text, answer, container.id)


def _superseded(accepted: AcceptedNote) -> list[Issue]:
    if accepted.superseded_by is None:
        return []
    message = f"this text was added before and is superseded by document '{accepted.superseded_by}': searches do not find it"
    return [Issue(code=IssueCode.CONFLICT, message=message)]


def _checked(body: AddBody) -> str:
    text = (body.text or "").strip()
    if not text:
        raise Invalid("text is empty")
    wrong = trouble(text, layout=True)
    if wrong is not None:
        raise Invalid(f"text {wrong}")
    if body.uri or body.file_ref or body.source_uri or body.filename:
        raise Invalid("give either text or a source (uri, file_ref), not both")
    if body.expires_at is not None and body.expires_at <= datetime.now(UTC):
        raise Invalid(f"expires_at: {body.expires_at.isoformat()} has passed")
    return text


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
        found = await find(request, shared, caller, request_id, links)
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
