"""Documents: list, show, delete."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Response

from latent_core.db import audit
from latent_core.db.connection import Connection
from latent_core.db.documents import document_listing, documents, outline, trash
from latent_core.db.documents.document_listing import DocumentFilter
from latent_core.db.documents.trash import DeletedDocument
from latent_core.domain import cursors
from latent_core.domain.chunk import SourceType
from latent_core.domain.document import DocumentState, DocumentView
from latent_core.domain.document_order import DocumentOrder, ListPosition, position
from latent_core.domain.errors import Issue, IssueCode, NotFound
from latent_core.domain.note import is_version
from latent_core.domain.origin import Origin
from latent_core.domain.text import Text
from latent_core.domain.token import Scope
from latent_core.domain.versions import recipe
from latent_core.ingest.delete import delete_documents, delete_records
from latent_core.ingest.restore import DAYS, give_up, restore
from latent_core.runtime.failpoint import failpoint
from latent_core.wire.base import Moment
from latent_core.wire.documents import (
    DeletedPage,
    DeletedView,
    DeletionAnswer,
    DocumentAnswer,
    DocumentPage,
    OutlineAnswer,
    OutlineSection,
)
from latent_core.wire.jobs import JobAccepted
from latent_gateway.auth import access
from latent_gateway.auth.access import Writable
from latent_gateway.auth.principal import Principal
from latent_gateway.context import Caller, Gateway, RequestId, Shared
from latent_gateway.envelope import json_answer
from latent_gateway.middleware.conditional import IfNoneMatch, tagged_answer

router = APIRouter(tags=["documents"])

MAX_SECTIONS: Final = 500
TOO_LONG: Final = Issue(
    code=IssueCode.POLICY,
    message=f"the outline shows the first {MAX_SECTIONS} sections (the limit)",
)
Limit = Annotated[int, Query(ge=1, le=cursors.MAX_PAGE)]
Cursor = Annotated[str | None, Query(max_length=128)]


def _unknown(doc_id: UUID) -> NotFound:
    return NotFound(
        f"document '{doc_id}' does not exist, or you may not read it", doc_id=str(doc_id)
    )


@router.get("/v1/containers/{container_id}/documents", response_model=DocumentPage)
async def list_documents(
    container_id: str,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    limit: Limit = 100,
    cursor: Cursor = None,
    uri_prefix: Annotated[Text | None, Query(max_length=4096)] = None,
    path: Annotated[Text | None, Query(max_length=4096)] = None,
    source_type: Annotated[list[SourceType] | None, Query()] = None,
    state: Literal["live", "pending", "failed"] | None = None,
    origin: Annotated[list[Origin] | None, Query()] = None,
    written_by: Annotated[Text | None, Query(max_length=128)] = None,
    session: Annotated[Text | None, Query(max_length=200)] = None,
    since: Moment | None = None,
    until: Moment | None = None,
    superseded: bool = True,
    order: DocumentOrder = DocumentOrder.ID,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Documents, by id or in another order. ``path`` is a glob or a part of the path; ``since`` and ``until`` are about
    when the content was added. A cursor belongs to the order it was made for."""
    chosen = DocumentFilter(
        uri_prefix=uri_prefix,
        path=path,
        source_types=source_type,
        state=None if state is None else DocumentState(state),
        origins=origin,
        written_by=written_by,
        session=session,
        since=since,
        until=until,
        superseded=superseded,
    )
    async with shared.stack.db.transaction() as conn:
        container = await access.readable_one(conn, caller, container_id)
        answer = await listed_documents(
            conn, container.id, chosen, order, cursor=cursor, limit=limit
        )
    return tagged_answer(answer, request_id, if_none_match)


async def listed_documents(
    conn: Connection,
    container_id: str,
    chosen: DocumentFilter,
    order: DocumentOrder,
    *,
    cursor: str | None,
    limit: int,
) -> DocumentPage:
    """A page of the list; ``Invalid`` for a cursor of another order."""
    after = position(cursor, order)
    found = await document_listing.listed(
        conn, container_id, chosen, order, after=after, limit=limit + 1
    )
    more = ListPosition.of(found[limit - 1], order).cursor() if len(found) > limit else None
    return DocumentPage(documents=found[:limit], next_cursor=more)


@router.get(
    "/v1/containers/{container_id}/documents/{doc_id}/outline", response_model=OutlineAnswer
)
async def show_outline(
    container_id: str, doc_id: UUID, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """The headings of a document with the lines and pages of their sections, which ``documents_get`` reads by id."""
    async with shared.stack.db.reading() as conn:
        container = await access.readable_one(conn, caller, container_id)
        found = await documents.view(conn, doc_id)
        if found is None or found.container_id != container.id:
            raise _unknown(doc_id)
        answer = await outlined(conn, found)
    return json_answer(answer, request_id)


async def outlined(conn: Connection, document: DocumentView) -> OutlineAnswer:
    rows = await outline.sections(conn, document.doc_id, MAX_SECTIONS + 1)
    sections = [
        OutlineSection(
            id=f"s{number}",
            heading=row.heading_path[-1] if row.heading_path else "",
            level=len(row.heading_path),
            line_start=row.line_start,
            line_end=row.line_end,
            page=row.page,
            page_end=row.page_end,
            characters=row.characters,
        )
        for number, row in enumerate(rows[:MAX_SECTIONS], 1)
    ]
    return OutlineAnswer(
        doc_id=document.doc_id,
        title=document.title,
        pages=document.pages,
        sections=sections,
        partial=len(rows) > MAX_SECTIONS,
        issues=[TOO_LONG] if len(rows) > MAX_SECTIONS else [],
    )


@router.get("/v1/containers/{container_id}/documents/{doc_id}", response_model=DocumentAnswer)
async def show(
    container_id: str,
    doc_id: UUID,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """One document."""
    async with shared.stack.db.transaction() as conn:
        container = await access.readable_one(conn, caller, container_id)
        found = await documents.view(conn, doc_id)
    if found is None or found.container_id != container.id:
        raise _unknown(doc_id)
    return tagged_answer(DocumentAnswer(document=found), request_id, if_none_match)


@router.delete(
    "/v1/containers/{container_id}/documents/{doc_id}",
    response_model=DeletionAnswer,
    status_code=202,
)
async def delete(
    container_id: str,
    doc_id: UUID,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    now: bool = False,
) -> Response:
    """Delete a document with its records. It is invisible at once; a job removes it.

    Its bytes are kept for 30 days, in which it can be restored. With ``now`` they are not: the job then proves the
    deletion. Corpora and records cannot be restored.
    """
    answer = await delete_document(shared, caller, container_id, doc_id, request_id, now=now)
    return json_answer(answer, request_id, status=202)


async def delete_document(
    shared: Gateway,
    caller: Principal,
    container_id: str,
    doc_id: UUID,
    request_id: str,
    *,
    now: bool,
) -> DeletionAnswer:
    """The job of the deletion, which is committed."""
    lease = shared.settings.lease_seconds
    until = None if now else datetime.now(UTC) + timedelta(days=DAYS)
    async with shared.stack.db.transaction() as conn:
        container = await access.deletable(conn, caller, container_id)
        await access.held(conn, container)
        found = await documents.view(conn, doc_id)
        if found is None and now:
            return await _give_up(conn, shared, caller, container, doc_id, request_id)
        if found is None or found.container_id != container.id:
            raise _unknown(doc_id)
        access.check_own(caller, container, found.written_by, doc_id)
        deleted = await delete_documents(
            conn,
            container.id,
            [doc_id],
            principal=caller.name,
            lease_seconds=lease,
            restorable_until=until,
        )
        if deleted is None:
            raise _unknown(doc_id)
        await _note(conn, caller, "document.delete", container, found.source_uri, request_id)
        failpoint("delete.before_commit")
    failpoint("delete.after_commit")
    await delete_records(
        shared.stack.db,
        container.id,
        deleted.corpora,
        principal=caller.name,
        lease_seconds=lease,
        of=deleted.job_id,
    )
    shared.stack.wake()
    return DeletionAnswer(job_id=deleted.job_id, restorable_until=deleted.restorable_until)


async def _give_up(
    conn: Connection,
    shared: Gateway,
    caller: Principal,
    container: Writable,
    doc_id: UUID,
    request_id: str,
) -> DeletionAnswer:
    """Remove also what is kept of a document that was deleted before."""
    document = await _deleted(conn, caller, container, doc_id)
    job_id = await give_up(
        conn, document, principal=caller.name, lease_seconds=shared.settings.lease_seconds
    )
    await _note(conn, caller, "document.delete", container, document.uri, request_id)
    return DeletionAnswer(job_id=job_id)


@router.get("/v1/containers/{container_id}/trash", response_model=DeletedPage)
async def trash_list(
    container_id: str,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    limit: Limit = 100,
) -> Response:
    """Deleted documents that can be restored, newest deletion first. Without the right to delete, only one's own."""
    async with shared.stack.db.reading() as conn:
        container = await access.deletable(conn, caller, container_id)
        everything = Scope.DELETE in access.rights(caller, container)
        found = await trash.listed(
            conn, container.id, written_by=None if everything else caller.name, limit=limit
        )
    views = [
        DeletedView(
            doc_id=one.id,
            source_uri=one.uri,
            title=one.title,
            written_by=one.written_by,
            deleted_at=one.deleted_at,
            restorable_until=one.restorable_until,
        )
        for one in found
    ]
    return json_answer(DeletedPage(documents=views), request_id)


@router.post(
    "/v1/containers/{container_id}/documents/{doc_id}/restore",
    response_model=JobAccepted,
    status_code=202,
)
async def restore_document(
    container_id: str, doc_id: UUID, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Restore a deleted document. It is visible again when its job is done."""
    async with shared.stack.db.transaction() as conn:
        container = await access.deletable(conn, caller, container_id)
        await access.held(conn, container)
        document = await _deleted(conn, caller, container, doc_id)
        restored = await restore(conn, document, recipe(container.manifest), principal=caller.name)
        await _note(conn, caller, "document.restore", container, document.uri, request_id)
    shared.stack.wake()
    return json_answer(JobAccepted(job_id=restored.job_id), request_id, status=202)


async def _deleted(
    conn: Connection, caller: Principal, container: Writable, doc_id: UUID
) -> DeletedDocument:
    """The deleted document, locked; ``NotFound`` if it cannot be restored, also for the former text of a note."""
    found = await trash.one(conn, doc_id)
    if found is None or found.container_id != container.id or is_version(found.uri):
        raise NotFound(
            f"no deleted document '{doc_id}' can be restored: deletions with --now, and those of more than {DAYS} days "
            "ago, are final",
            doc_id=str(doc_id),
        )
    access.check_own(caller, container, found.written_by, doc_id)
    return found


async def _note(
    conn: Connection,
    caller: Principal,
    action: str,
    container: Writable,
    object_: str,
    request_id: str,
) -> None:
    await audit.note(
        conn,
        principal=caller.name,
        token_id=caller.token_id,
        action=action,
        container_id=container.id,
        object_=object_,
        request_id=request_id,
    )
