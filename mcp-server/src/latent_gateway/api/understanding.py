"""``GET /v1/admin/understanding``: how far summaries and page extractions are, and what they cost;
``POST /v1/admin/extract``: extract pages of selected documents."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Query, Response

from latent_core.db.connection import Connection
from latent_core.db.containers import Container
from latent_core.db.documents import understanding
from latent_core.db.documents.page_extractions import ExtractionMaker
from latent_core.domain import cursors
from latent_core.domain.errors import Invalid
from latent_core.domain.extraction import PROMPT, VERSION
from latent_core.domain.job import JobState
from latent_core.domain.manifest.language_models import ModelBlock
from latent_core.domain.pdf_status import Action, SelectedDocument
from latent_core.domain.text import Text
from latent_core.domain.token import Scope
from latent_core.domain.understanding import DocumentUnderstanding, UnderstandingTotals
from latent_core.ingest import extraction
from latent_core.wire.understanding import ExtractAnswer, ExtractBody, UnderstandingPage
from latent_gateway.api.processing import EVENTS, after_id, begun, followed
from latent_gateway.api.sse import CountedStream
from latent_gateway.auth import access
from latent_gateway.auth.principal import Principal
from latent_gateway.context import Caller, Gateway, RequestId, Shared
from latent_gateway.envelope import json_answer

router = APIRouter(tags=["admin"])

OPEN: Final = (JobState.QUEUED, JobState.RUNNING)


@router.get("/v1/admin/understanding", response_model=UnderstandingPage)
async def status_of_understanding(
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    container_id: Annotated[Text, Query(max_length=64)],
    limit: Annotated[int, Query(ge=1, le=cursors.MAX_PAGE)] = 100,
    cursor: Annotated[str | None, Query(max_length=128)] = None,
) -> Response:
    """Documents of a container, ordered by id: extracted, failed and stale pages, the state of the summary, tokens and
    cost. The first page also has the totals."""
    after = after_id(cursor)
    access.require(caller, Scope.ADMIN)
    async with shared.stack.db.reading() as conn:
        container = await access.owned(conn, caller, container_id)
        totals = await _totals(conn, container) if after is None else None
        found = await _documents(conn, container, after=after, limit=limit + 1)
    more = cursors.encode(found[limit - 1].doc_id) if len(found) > limit else None
    answer = UnderstandingPage(totals=totals, documents=found[:limit], next_cursor=more)
    return json_answer(answer, request_id)


def _model(block: ModelBlock) -> str | None:
    return block.provider if block.enabled else None


def _made_by(container: Container) -> ExtractionMaker:
    return ExtractionMaker(_model(container.manifest.extraction) or "", PROMPT, str(VERSION))


async def _totals(conn: Connection, container: Container) -> UnderstandingTotals:
    summary_model = _model(container.manifest.summaries)
    return UnderstandingTotals(
        extraction_model=_model(container.manifest.extraction),
        summary_model=summary_model,
        extraction=await understanding.extraction_totals(
            conn, container.id, _made_by(container), extraction.EXTRACTED
        ),
        summaries=await understanding.summary_totals(conn, container.id, summary_model),
        usage=await understanding.usage(conn, container.id),
    )


async def _documents(
    conn: Connection,
    container: Container,
    *,
    doc_ids: Sequence[UUID] | None = None,
    after: UUID | None = None,
    limit: int,
) -> list[DocumentUnderstanding]:
    return await understanding.documents(
        conn,
        container.id,
        _made_by(container),
        types=extraction.EXTRACTED,
        summary_model=_model(container.manifest.summaries),
        doc_ids=doc_ids,
        after=after,
        limit=limit,
    )


@router.post("/v1/admin/extract", response_model=ExtractAnswer, status_code=202, responses=EVENTS)
async def extract(
    body: ExtractBody, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Have pages described by the language model of the container's manifest, as jobs.

    Pages that are extracted with today's prompt and model stay, unless ``force`` is set. Idempotent: equal requests that
    wait are one job.
    """
    selected = await _begun(shared, caller, body, request_id)
    answer = ExtractAnswer(
        container_id=body.container_id,
        queued=sum(one.job_id is not None for one in selected),
        documents=selected,
    )
    if not body.stream:
        return json_answer(answer, request_id, status=202)
    shared.streams.take(caller)
    answer.request_id = request_id
    return CountedStream(_followed(shared, caller, answer), shared.streams, caller)


async def _begun(
    shared: Gateway, caller: Principal, body: ExtractBody, request_id: str
) -> list[SelectedDocument]:
    async def select(
        conn: Connection, container: Container, doc_ids: Sequence[UUID]
    ) -> list[SelectedDocument]:
        return await extraction.request(
            conn, container.id, doc_ids, body.pages, force=body.force, principal=caller.name
        )

    return await begun(
        shared,
        caller,
        body.container_id,
        list(dict.fromkeys(body.doc_ids)),
        request_id,
        action="document.extract",
        select=select,
        check=_check_permitted,
    )


def _check_permitted(container: Container) -> None:
    if _model(container.manifest.extraction) is None:
        raise Invalid(
            f"container '{container.id}' names no language model for page extraction. Set extraction.enabled and "
            "extraction.provider in its manifest (latent container apply)"
        )


async def _followed(
    shared: Gateway, caller: Principal, accepted: ExtractAnswer
) -> AsyncIterator[bytes]:
    ids = [one.doc_id for one in accepted.documents if one.action is not Action.REFUSED]

    async def look(conn: Connection, container: Container) -> dict[UUID, DocumentUnderstanding]:
        found = await _documents(conn, container, doc_ids=ids, limit=len(ids)) if ids else []
        return {one.doc_id: one for one in found}

    async for event in followed(shared, caller, accepted, accepted.container_id, look, _goes_on):
        yield event


def _goes_on(status: DocumentUnderstanding) -> bool:
    return status.extraction is not None and status.extraction.job_state in OPEN
