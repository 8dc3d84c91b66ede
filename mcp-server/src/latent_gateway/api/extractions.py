"""``GET /v1/containers/{container_id}/pages``: pages by text or number;
``GET /v1/documents/{doc_id}/pages/{page}/extraction``: what a language model said about a page."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Response

from latent_core.db.documents import page_extractions, page_search
from latent_core.db.documents.page_extractions import PageExtractionRow
from latent_core.db.documents.page_search import FoundPageRow
from latent_core.domain import cursors, visual_importance
from latent_core.domain.errors import Invalid, NotFound
from latent_core.domain.extraction import PageExtraction
from latent_core.domain.text import Text
from latent_core.domain.token import Scope
from latent_core.domain.visual_importance import Importance, ImportanceBy
from latent_core.wire.understanding import (
    ExtractionAnswer,
    ExtractionView,
    FoundPage,
    FoundPages,
)
from latent_gateway.api.pages import readable_document
from latent_gateway.auth import access
from latent_gateway.context import Caller, RequestId, Shared
from latent_gateway.envelope import json_answer

router = APIRouter(tags=["documents"])

MAX_TEXT = 1000
MAX_DOCUMENTS = 100


@router.get("/v1/containers/{container_id}/pages", response_model=FoundPages)
async def find_pages(
    container_id: str,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    text: Annotated[Text | None, Query(min_length=1, max_length=MAX_TEXT)] = None,
    page: Annotated[int | None, Query(ge=1, lt=2**31)] = None,
    doc_id: Annotated[list[UUID] | None, Query(max_length=MAX_DOCUMENTS)] = None,
    limit: Annotated[int, Query(ge=1, le=cursors.MAX_PAGE)] = 100,
    cursor: Annotated[str | None, Query(max_length=128)] = None,
) -> Response:
    """Pages that contain a text, in the source or in their extraction, without regard to case; or pages of a number.

    One answer covers some thousand pages: go on while there is a cursor, also after an answer without pages.
    """
    if text is None and page is None:
        raise Invalid("name a text or a page")
    after = _after(cursor)
    async with shared.stack.db.transaction() as conn:
        container = await access.readable_one(conn, caller, container_id)
        found = await page_search.find(
            conn,
            container.id,
            text=text or "",
            page=page,
            doc_ids=doc_id,
            after=after,
            limit=limit,
        )
    more = cursors.encode(f"{found.last[0]}:{found.last[1]}") if found.last else None
    answer = FoundPages(
        pages=[_found(row, with_text=text is not None) for row in found.rows], next_cursor=more
    )
    return json_answer(answer, request_id)


def _after(cursor: str | None) -> tuple[UUID, int] | None:
    if cursor is None:
        return None
    doc_id, _, page = cursors.decode(cursor).partition(":")
    try:
        return UUID(doc_id), min(int(page), 2**31 - 1)
    except ValueError as exc:
        raise Invalid(
            "invalid cursor: it does not come from this API. Start again without a cursor"
        ) from exc


def _found(row: FoundPageRow, *, with_text: bool) -> FoundPage:
    places: list[Literal["source", "extraction"]] = []
    if with_text and row.in_source:
        places.append("source")
    if with_text and row.in_extraction:
        places.append("extraction")
    importance, importance_by = _importance(row)
    return FoundPage(
        doc_id=row.doc_id,
        page=row.page,
        source_uri=row.uri,
        title=row.title,
        excerpt=row.excerpt,
        found_in=places,
        extraction="none" if row.state is None else "done" if row.state == "done" else "failed",
        cause=row.cause,
        visual_importance=importance,
        visual_importance_by=importance_by,
        page_hash=row.page_hash,
        page_pdf_sha256=row.page_pdf_sha256,
    )


def _importance(row: FoundPageRow) -> tuple[Importance | None, ImportanceBy | None]:
    return visual_importance.judged(row.visual_importance, row.visual)


@router.get("/v1/documents/{doc_id}/pages/{page}/extraction", response_model=ExtractionAnswer)
async def page_extraction(
    doc_id: UUID, page: int, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """What a language model said about a page, or why its answer was refused."""
    async with shared.stack.db.transaction() as conn:
        document = await readable_document(conn, caller, doc_id)
        container = await access.readable_one(conn, caller, document.container_id)
        rows = await page_extractions.of_document(conn, doc_id, [page]) if 0 < page < 2**31 else {}
    is_owner = Scope.ADMIN in access.rights(caller, container)
    if page not in rows:
        raise NotFound(
            f"page {page} of document '{doc_id}' is not extracted", doc_id=str(doc_id), page=page
        )
    view = _view(rows[page], document.source_uri, is_owner=is_owner)
    return json_answer(ExtractionAnswer(page=view), request_id)


def _view(row: PageExtractionRow, source: str, *, is_owner: bool) -> ExtractionView:
    return ExtractionView(
        doc_id=row.doc_id,
        source=source,
        page=row.page,
        next_page=row.next_page,
        state=row.state,
        extraction=None
        if row.extraction is None
        else PageExtraction.model_validate(dict(row.extraction)),
        cause=None if row.cause is None else str(row.cause.get("message")),
        raw=row.raw if is_owner else None,
        model=row.model,
        prompt_version=row.prompt_version,
        version=row.version,
        page_hash=row.page_hash,
        pdf_sha256=row.pdf_sha256,
        page_pdf_sha256=row.page_pdf_sha256,
        next_page_pdf_sha256=row.next_page_pdf_sha256,
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        cost=row.cost,
        created_at=row.created_at,
    )
