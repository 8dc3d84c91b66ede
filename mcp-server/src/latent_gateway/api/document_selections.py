"""Changes of selected documents: ingest again, delete. Each document has an outcome of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final
from uuid import UUID

from fastapi import APIRouter, Response

from latent_core.db import audit
from latent_core.db.documents import documents
from latent_core.doctor.context import NotRepairable, RepairContext
from latent_core.doctor.reingest import reingest_document
from latent_core.domain.document import DocumentView
from latent_core.domain.errors import Conflict, Forbidden, NotFound
from latent_core.domain.ids import JobId
from latent_core.domain.job import JobState
from latent_core.queue import admin
from latent_core.wire.documents import DocumentOutcome, SelectionAnswer, SelectionBody
from latent_gateway.api.documents import delete_document
from latent_gateway.auth import access
from latent_gateway.auth.access import Writable
from latent_gateway.auth.principal import Principal
from latent_gateway.context import Caller, Gateway, RequestId, Shared
from latent_gateway.envelope import json_answer

router = APIRouter(tags=["documents"])

SECONDS: Final = 20.0
"""Of one request: originals are read completely before they replace anything."""
TOO_LATE: Final = "Not begun within the time limit of one request. Select it again."
ENDED: Final = (JobState.FAILED, JobState.CANCELLED)


@router.post(
    "/v1/containers/{container_id}/documents/reingest",
    response_model=SelectionAnswer,
    status_code=202,
)
async def reingest_selection(
    container_id: str, body: SelectionBody, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Read documents again from their stored originals or web pages, with the present parsers and settings. What is
    live stays searchable until the new version is. The job of a failed document is queued again."""
    found = await reingested(shared, caller, container_id, body.doc_ids, request_id)
    return json_answer(SelectionAnswer(documents=found), request_id, status=202)


@router.post(
    "/v1/containers/{container_id}/documents/delete",
    response_model=SelectionAnswer,
    status_code=202,
)
async def delete_selection(
    container_id: str, body: SelectionBody, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Delete documents with their records. They are invisible at once and can be restored for 30 days."""
    found = await deleted(shared, caller, container_id, body.doc_ids, request_id)
    return json_answer(SelectionAnswer(documents=found), request_id, status=202)


async def reingested(
    shared: Gateway, caller: Principal, container_id: str, doc_ids: list[UUID], request_id: str
) -> list[DocumentOutcome]:
    """The outcome of each document; ``Forbidden`` and ``Conflict`` for the container as a whole."""
    async with shared.stack.db.transaction() as conn:
        container = await access.writable(conn, caller, container_id)
        await shared.quotas.check_queue(conn, caller)
    ctx = RepairContext(
        shared.stack.db,
        shared.stack.vectors,
        shared.stack.blobs,
        caller.name,
        shared.settings.lease_seconds,
    )

    async def one(doc_id: UUID) -> DocumentOutcome:
        view = await _of_container(shared, container, doc_id)
        job_id, message = await _requeued(shared, view), ""
        if job_id is None:
            result = await reingest_document(ctx, container, doc_id)
            job_id, message = result.job_id, result.message
        if job_id is None:
            return DocumentOutcome(doc_id=doc_id, cause=message)
        await _note(shared, caller, container, view, request_id)
        return DocumentOutcome(doc_id=doc_id, job_id=job_id)

    found = await _each(doc_ids, one)
    shared.stack.wake()
    return found


async def deleted(
    shared: Gateway, caller: Principal, container_id: str, doc_ids: list[UUID], request_id: str
) -> list[DocumentOutcome]:
    """The outcome of each document; ``Forbidden`` and ``Conflict`` for the container as a whole."""
    async with shared.stack.db.reading() as conn:
        await access.deletable(conn, caller, container_id)

    async def one(doc_id: UUID) -> DocumentOutcome:
        answer = await delete_document(shared, caller, container_id, doc_id, request_id, now=False)
        return DocumentOutcome(doc_id=doc_id, job_id=answer.job_id)

    return await _each(doc_ids, one)


async def _each(
    doc_ids: list[UUID], change: Callable[[UUID], Awaitable[DocumentOutcome]]
) -> list[DocumentOutcome]:
    """One after the other: what fails for one document is its outcome, and the others go on."""
    loop = asyncio.get_running_loop()
    until, found = loop.time() + SECONDS, list[DocumentOutcome]()
    for doc_id in dict.fromkeys(doc_ids):
        if loop.time() > until:
            found.append(DocumentOutcome(doc_id=doc_id, cause=TOO_LATE))
            continue
        try:
            found.append(await change(doc_id))
        except (NotFound, Forbidden, Conflict) as error:
            found.append(DocumentOutcome(doc_id=doc_id, cause=error.message))
        except NotRepairable as error:
            found.append(DocumentOutcome(doc_id=doc_id, cause=str(error)))
    return found


async def _of_container(shared: Gateway, container: Writable, doc_id: UUID) -> DocumentView:
    async with shared.stack.db.reading() as conn:
        view = await documents.view(conn, doc_id)
    if view is None or view.container_id != container.id:
        raise NotFound(f"document '{doc_id}' does not exist here", doc_id=str(doc_id))
    return view


async def _requeued(shared: Gateway, view: DocumentView) -> JobId | None:
    """The job of a failed document, queued again: it has the newest bytes. None if there is none."""
    if view.failure is None or view.failure.job_id is None:
        return None
    async with shared.stack.db.transaction() as conn:
        job = await admin.get(conn, view.failure.job_id)
        if job.state not in ENDED:
            return None
        await admin.requeue(conn, view.failure.job_id)
    return JobId(view.failure.job_id)


async def _note(
    shared: Gateway, caller: Principal, container: Writable, view: DocumentView, request_id: str
) -> None:
    async with shared.stack.db.transaction() as conn:
        await audit.note(
            conn,
            principal=caller.name,
            action="document.reingest",
            container_id=container.id,
            object_=view.source_uri,
            request_id=request_id,
        )
