"""``POST /v1/admin/doctor``: compare the stores."""

from __future__ import annotations

from fastapi import APIRouter, Response

from latent_core.generations.doctor import Doctor
from latent_gateway.answers import json_answer
from latent_gateway.api.bodies import DoctorAnswer, DoctorBody
from latent_gateway.auth import access
from latent_gateway.context import Caller, RequestId, Shared

router = APIRouter(tags=["admin"])


@router.post("/v1/admin/doctor", response_model=DoctorAnswer)
async def doctor(
    body: DoctorBody, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Compare rows, points, postings and blobs; every difference is told. Changes nothing."""
    wanted = None
    async with shared.stack.db.transaction() as conn:
        if body.container_id is not None:
            wanted = [(await access.owned(conn, caller, body.container_id)).id]
        elif not caller.is_owner:
            wanted = [c.id for c in await access.all_readable(conn, caller)]
    stack = shared.stack
    examined = Doctor(
        stack.db, stack.vectors, stack.blobs, grace_seconds=4 * shared.settings.lease_seconds
    )
    report = await examined.examine(wanted)
    return json_answer(DoctorAnswer(report=report.model_dump(mode="json")), request_id)
