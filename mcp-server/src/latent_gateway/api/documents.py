"""Documents: list, show, delete."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Response

from latent_core.db import audit
from latent_core.db.documents import documents
from latent_core.domain import cursors
from latent_core.domain.errors import Invalid, NotFound
from latent_core.domain.text import Text
from latent_core.domain.token import Scope
from latent_core.ingest.delete import delete_documents, delete_records
from latent_core.runtime.failpoint import failpoint
from latent_core.wire.documents import DocumentAnswer, DocumentPage
from latent_core.wire.jobs import JobAccepted
from latent_gateway.auth import access
from latent_gateway.context import Caller, RequestId, Shared
from latent_gateway.envelope import json_answer
from latent_gateway.middleware.conditional import IfNoneMatch, tagged_answer

router = APIRouter(tags=["documents"])

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
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Documents, ordered by id."""
    after = _after(cursor)
    async with shared.stack.db.transaction() as conn:
        container = await access.readable_one(conn, caller, container_id)
        found = await documents.page(
            conn, container.id, after=after, limit=limit + 1, uri_prefix=uri_prefix
        )
    more = cursors.encode(found[limit - 1].doc_id) if len(found) > limit else None
    answer = DocumentPage(documents=found[:limit], next_cursor=more)
    return tagged_answer(answer, request_id, if_none_match)


def _after(cursor: str | None) -> UUID | None:
    if cursor is None:
        return None
    try:
        return UUID(cursors.decode(cursor))
    except ValueError as exc:
        raise Invalid(
            "invalid cursor: it does not come from this API. Start again without a cursor"
        ) from exc


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
    "/v1/containers/{container_id}/documents/{doc_id}", response_model=JobAccepted, status_code=202
)
async def delete(
    container_id: str, doc_id: UUID, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Delete a document and its records. It is invisible at once; a job removes it."""
    lease = shared.settings.lease_seconds
    async with shared.stack.db.transaction() as conn:
        container = await access.writable(conn, caller, container_id, scope=Scope.DELETE)
        await access.held(conn, container)
        found = await documents.view(conn, doc_id)
        if found is None or found.container_id != container.id:
            raise _unknown(doc_id)
        deleted = await delete_documents(
            conn, container.id, [doc_id], principal=caller.name, lease_seconds=lease
        )
        if deleted is None:
            raise _unknown(doc_id)
        await audit.note(
            conn,
            principal=caller.name,
            action="document.delete",
            container_id=container.id,
            object_=found.source_uri,
            request_id=request_id,
        )
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
    return json_answer(JobAccepted(job_id=deleted.job_id), request_id, status=202)
