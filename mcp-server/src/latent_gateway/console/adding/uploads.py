"""Files from a browser's form, with or without a progress script."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

from fastapi import Request, Response
from fastapi.responses import RedirectResponse
from starlette.datastructures import UploadFile

from latent_core.domain.errors import LatentError, TooLarge
from latent_core.wire.documents import AddBody, UploadAnswer
from latent_gateway.api import uploads
from latent_gateway.api.ingest import accept_source
from latent_gateway.auth import access
from latent_gateway.auth.quotas import check_capacity
from latent_gateway.console.frame.console_session import ConsoleSession, SignedIn
from latent_gateway.console.frame.form_files import (
    FORM_BYTES,
    chosen_files,
    received_form,
    request_of,
)
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.frame.view import HEADERS
from latent_gateway.context import Gateway, Shared

router = pages()

MAX_FILES: Final = 20
FIELD: Final = "files"


@router.post("/console/containers/{container_id}/uploads")
async def send(container_id: str, request: Request, shared: Shared, session: SignedIn) -> Response:
    """Accept the files of a form as the API does, then show the container's jobs."""
    declared = max(0, uploads.declared_bytes(request) - FORM_BYTES)
    async with shared.stack.db.reading() as conn:
        await access.writable(conn, session.principal, container_id)
        left = await shared.quotas.bytes_left(conn, session.principal, declared)
        await shared.stack.capacity.check(conn)
    await check_capacity(shared.stack.tmp, shared.settings.min_free_bytes, declared)
    limit = shared.settings.max_upload_bytes
    refusal: LatentError = TooLarge(
        f"files sent together may have at most {limit} bytes: send fewer at once"
    )
    if left is not None and left < limit:
        limit, refusal = left, shared.quotas.out_of_bytes()
    tmp = shared.stack.tmp
    async with received_form(request, tmp, limit, refusal, max_files=MAX_FILES) as form:
        for file in chosen_files(form, FIELD):
            await _take(container_id, file, request, shared, session)
    query = urlencode({"container": container_id})
    return RedirectResponse(f"/console/jobs?{query}", 303, HEADERS)


async def _take(
    container_id: str, file: UploadFile, request: Request, shared: Gateway, session: ConsoleSession
) -> None:
    """One file, through the API's own functions, so that their limits and audit apply."""
    name = file.filename or ""
    answer = await uploads.upload(
        container_id,
        request_of(request, file),
        name,
        shared,
        session.principal,
        session.request_id,
    )
    stored = UploadAnswer.model_validate_json(bytes(answer.body)).upload
    body = AddBody(container_id=container_id, file_ref=stored.file_ref)
    await accept_source(body, shared, session.principal, session.request_id)
