"""``GET /v1/documents/{doc_id}/pages/{page}/pdf``: one page of a PDF as its own file."""

from __future__ import annotations

from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Query, Response

from latent_core.db.connection import Connection
from latent_core.db.documents import pages
from latent_core.db.documents.pages import PageSource
from latent_core.domain.errors import IngestFailed, NotFound
from latent_core.domain.ids import JobId
from latent_core.domain.job import JobState
from latent_core.ingest.processing import request_page_pdf
from latent_core.wire.pages import PagePdfAnswer
from latent_gateway.api.sse import ended
from latent_gateway.auth import access
from latent_gateway.auth.principal import Principal
from latent_gateway.context import BlobLinks, Caller, Gateway, RequestId, Shared, SignedLinks
from latent_gateway.envelope import json_answer

router = APIRouter(tags=["documents"])

WAIT_MS: Final = 10_000
MAX_WAIT_MS: Final = 60_000


@router.get("/v1/documents/{doc_id}/pages/{page}/pdf", response_model=PagePdfAnswer)
async def page_pdf(
    doc_id: UUID,
    page: int,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    links: SignedLinks,
    wait_ms: Annotated[int, Query(ge=0, le=MAX_WAIT_MS)] = WAIT_MS,
) -> Response:
    """A link to the PDF of one page. The first request creates it: 202 with the job until it exists."""
    source, job_id = await requested_page(shared, caller, doc_id, page)
    if job_id is not None:
        source = await made_page(shared, doc_id, source, job_id, wait_ms / 1000)
    ready = source.made is not None
    answer = PagePdfAnswer(
        page=page,
        page_pdf="ready" if ready else "pending",
        pdf_uri=page_link(links, source),
        pdf_sha256=source.sha256,
        page_pdf_sha256=source.made.sha256 if source.made else None,
        job_id=None if ready else job_id,
    )
    return json_answer(answer, request_id, status=200 if ready else 202)


async def requested_page(
    shared: Gateway, caller: Principal, doc_id: UUID, page: int
) -> tuple[PageSource, JobId | None]:
    """The page as the caller may read it, and the job that makes its PDF if there is none yet."""
    async with shared.stack.db.transaction() as conn:
        source = await _readable(conn, caller, doc_id, page)
        if source.made is not None:
            return source, None
        await shared.quotas.check_queue(conn, caller)
        job_id = await request_page_pdf(conn, doc_id, source, principal=caller.name)
    shared.stack.wake()
    return source, job_id


def page_link(links: BlobLinks, source: PageSource) -> str | None:
    if source.made is None:
        return None
    return links.link(
        source.bucket, source.made.sha256, source.made.mime, "inline", source.made.filename
    )


async def _readable(conn: Connection, caller: Principal, doc_id: UUID, page: int) -> PageSource:
    """The document; ``NotFound`` both for a missing document and for one in a container that the caller may not
    read."""
    found = await pages.pdf_source(conn, doc_id, page if 0 < page < 2**31 else 0)
    container = await access.readable_of(conn, caller, found.container_id if found else None)
    if found is None or container is None:
        raise NotFound(
            f"document '{doc_id}' does not exist, or you may not read it", doc_id=str(doc_id)
        )
    if not found.exists:
        raise NotFound(f"document '{doc_id}' has no page {page}", doc_id=str(doc_id), page=page)
    return found


async def made_page(
    shared: Gateway, doc_id: UUID, source: PageSource, job_id: int, seconds: float
) -> PageSource:
    """The page when the job has created its PDF, or as it is after the time limit. ``IngestFailed`` says why it
    cannot be created."""
    job = await ended(shared.stack, job_id, seconds)
    async with shared.stack.db.transaction() as conn:
        found = await pages.pdf_source(conn, doc_id, source.page)
    if found is not None and found.made is not None:
        return found
    if job is not None and job.state is JobState.FAILED:
        cause = job.cause.message if job.cause else f"job {job_id} failed"
        raise IngestFailed(cause, doc_id=str(doc_id), page=source.page, job_id=str(job_id))
    return source  # a timeout, a changed document, or a cancelled job
