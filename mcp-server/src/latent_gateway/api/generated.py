"""``POST /v1/admin/drop-generated``: remove what language models wrote about documents."""

from __future__ import annotations

from fastapi import APIRouter, Response

from latent_core.db import audit
from latent_core.domain.token import Scope
from latent_core.ingest.generated import DropPayload, request_drop
from latent_core.wire.jobs import JobAccepted
from latent_core.wire.understanding import DropGeneratedBody
from latent_gateway.api.processing import check_own
from latent_gateway.auth import access
from latent_gateway.context import Caller, RequestId, Shared
from latent_gateway.envelope import json_answer

router = APIRouter(tags=["admin"])


@router.post("/v1/admin/drop-generated", response_model=JobAccepted, status_code=202)
async def drop_generated(
    body: DropGeneratedBody, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Remove summaries, page extractions or captions, of some documents or of all, as a job.

    The texts of the documents are not touched. Answers of the model stay stored, so generating again costs nothing until
    they expire.
    """
    async with shared.stack.db.transaction() as conn:
        container = await access.writable(conn, caller, body.container_id, scope=Scope.ADMIN)
        await shared.quotas.check_queue(conn, caller)
        await access.held(conn, container)
        await check_own(conn, container.id, body.doc_ids or [])
        payload = DropPayload(group=body.group, doc_ids=body.doc_ids)
        job_id = await request_drop(conn, container.id, payload, principal=caller.name)
        chosen = "all" if body.doc_ids is None else str(len(body.doc_ids))
        await audit.note(
            conn,
            principal=caller.name,
            token_id=caller.token_id,
            action="document.drop_generated",
            container_id=container.id,
            object_=f"{body.group.value} of {chosen}",
            request_id=request_id,
        )
    shared.stack.wake()
    return json_answer(JobAccepted(job_id=job_id), request_id, status=202)
