"""``GET /v1/containers/{container_id}/documents/{doc_id}/summary``; ``POST /v1/admin/summarise``: summaries as jobs."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter, Response

from latent_core.db import audit
from latent_core.db.documents import documents, summaries
from latent_core.db.documents.summaries import SummaryRow
from latent_core.domain.errors import Invalid, NotFound
from latent_core.domain.summary import SummaryFrontMatter, summary_file
from latent_core.domain.token import Scope
from latent_core.ingest.summaries import request, request_all
from latent_core.wire.understanding import (
    DocumentSummaryAnswer,
    SummariseAnswer,
    SummariseBody,
    SummaryJob,
    SummaryView,
)
from latent_gateway.auth import access
from latent_gateway.context import Caller, RequestId, Shared
from latent_gateway.envelope import json_answer

router = APIRouter()


@router.get(
    "/v1/containers/{container_id}/documents/{doc_id}/summary",
    response_model=DocumentSummaryAnswer,
    tags=["documents"],
)
async def show_summary(
    container_id: str, doc_id: UUID, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """The summary that a language model wrote of a document, or why there is none."""
    async with shared.stack.db.transaction() as conn:
        container = await access.readable_one(conn, caller, container_id)
        view = await documents.view(conn, doc_id)
        own = view is not None and view.container_id == container.id
        row = (await summaries.of_documents(conn, [doc_id])).get(doc_id) if own else None
        is_owner = Scope.ADMIN in access.rights(caller, container)
    if not own:
        raise NotFound(
            f"document '{doc_id}' does not exist, or you may not read it", doc_id=str(doc_id)
        )
    if row is None:
        raise NotFound(
            f"document '{doc_id}' has no summary. Its owner makes one: latent summarise",
            doc_id=str(doc_id),
        )
    return json_answer(DocumentSummaryAnswer(summary=_view(row, is_owner=is_owner)), request_id)


def _view(row: SummaryRow, *, is_owner: bool) -> SummaryView:
    done = row.state == "done"
    front_matter = SummaryFrontMatter.model_validate(dict(row.front_matter)) if done else None
    return SummaryView(
        doc_id=row.doc_id,
        state=row.state,
        front_matter=front_matter,
        text=row.text,
        filename=f"{row.doc_id}.summary.md",
        file=None if front_matter is None else summary_file(front_matter, row.text),
        model=row.model,
        prompt_version=row.prompt_version,
        created_at=row.created_at,
        cause=None if row.cause is None else str(row.cause.get("message")),
        raw=row.raw if is_owner else None,
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        cost=row.cost,
    )


@router.post("/v1/admin/summarise", response_model=SummariseAnswer, status_code=202, tags=["admin"])
async def summarise(
    body: SummariseBody, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Have documents summarised by the language model of the container's manifest, one job per document.

    A summary of the same text by the same model and prompt stays, unless ``force`` is set. Idempotent: equal requests
    that wait are one job.
    """
    async with shared.stack.db.transaction() as conn:
        container = await access.writable(conn, caller, body.container_id, scope=Scope.ADMIN)
        if not container.manifest.summaries.enabled:
            raise Invalid(
                f"container '{container.id}' names no language model for summaries. Set summaries.enabled and "
                "summaries.provider in its manifest (latent container apply)"
            )
        await shared.quotas.check_queue(conn, caller)
        await shared.stack.capacity.check(conn)
        await access.held(conn, container)
        if body.doc_ids is None:
            found = await request_all(
                conn, container.id, after=body.after, force=body.force, principal=caller.name
            )
        else:
            doc_ids = list(dict.fromkeys(body.doc_ids))
            found = await request(
                conn, container.id, doc_ids, force=body.force, principal=caller.name
            )
            for doc_id in doc_ids:
                if doc_id not in found.jobs:
                    raise NotFound(
                        f"document '{doc_id}' does not exist, is not published yet, or you may not read it",
                        doc_id=str(doc_id),
                    )
        await audit.note(
            conn,
            principal=caller.name,
            token_id=caller.token_id,
            action="document.summarise",
            container_id=container.id,
            object_=f"{len(found.jobs)} documents",
            request_id=request_id,
        )
    shared.stack.wake()
    jobs = [SummaryJob(doc_id=doc_id, job_id=job_id) for doc_id, job_id in found.jobs.items()]
    answer = SummariseAnswer(container_id=container.id, jobs=jobs, next=found.last)
    return json_answer(answer, request_id, status=202)
