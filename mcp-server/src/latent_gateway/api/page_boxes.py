"""``GET /v1/documents/{doc_id}/pages/{page}/boxes``: where a passage and words are on the image of a page."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Query, Response

from latent_core.db.connection import Connection
from latent_core.db.documents import chunk_listing, page_words
from latent_core.db.documents.page_words import PageWordsRow
from latent_core.domain.chunk import Modality
from latent_core.domain.document import DocumentView
from latent_core.domain.errors import NotFound
from latent_core.domain.ids import JobId
from latent_core.domain.job import JobState
from latent_core.domain.page_words import PageWord
from latent_core.domain.passage_boxes import PageAlignment
from latent_core.domain.text import Text
from latent_core.ingest.processing import request_page_words
from latent_core.search.snippet import highlighted
from latent_core.wire.pages import BoxView, PageBoxesAnswer
from latent_core.wire.search import MAX_QUERY_CHARS
from latent_gateway.api.pages import no_page, readable_document
from latent_gateway.api.sse import ended
from latent_gateway.auth.principal import Principal
from latent_gateway.context import Caller, Gateway, RequestId, Shared
from latent_gateway.envelope import json_answer

router = APIRouter(tags=["documents"])

WAIT_MS: Final = 5_000
MAX_WAIT_MS: Final = 30_000
NO_PDF: Final = (
    "Passages have boxes on pages of PDFs and on pages that were read by OCR. This page is neither, or it was read "
    "before boxes were kept: ingest the document again."
)
NO_WORDS: Final = "The page has no text of its own: its words are part of a picture."
NOT_FOUND: Final = "The text of the passage was not found among the words of the page."


@router.get("/v1/documents/{doc_id}/pages/{page}/boxes", response_model=PageBoxesAnswer)
async def page_boxes(
    doc_id: UUID,
    page: int,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    chunk: UUID | None = None,
    q: Annotated[Text, Query(max_length=MAX_QUERY_CHARS)] = "",
    wait_ms: Annotated[int, Query(ge=0, le=MAX_WAIT_MS)] = WAIT_MS,
) -> Response:
    """Boxes around the passage of a chunk, and around the words of ``q`` in it (without a chunk: on the page).

    The first request for a page of a PDF reads its words: 202 with the job if that takes longer than ``wait_ms``.
    """
    selection = PassageSelection(doc_id, page, chunk, q)
    answer = await boxes_of(shared, caller, selection, wait_ms / 1000)
    return json_answer(answer, request_id, status=202 if answer.state == "pending" else 200)


@dataclass(frozen=True, slots=True)
class PassageSelection:
    """A page, and what to find on it."""

    doc_id: UUID
    page: int
    chunk_id: UUID | None = None
    query: str = ""


@dataclass(frozen=True, slots=True)
class PagePassage:
    """A page with the range of its text that the chunk covers."""

    document: DocumentView
    row: PageWordsRow
    start: int
    end: int
    is_passage: bool
    """False: the range is the whole page."""


async def boxes_of(
    shared: Gateway, caller: Principal, selection: PassageSelection, seconds: float
) -> PageBoxesAnswer:
    """The boxes, after at most ``seconds`` of waiting for the words. ``NotFound`` for a page that does not exist, or
    that the principal may not read."""
    async with shared.stack.db.reading() as conn:
        passage = await _passage(conn, caller, selection)
    words, cause, job_id = passage.row.placed(), None, None
    if words is None:
        job_id = await _requested(shared, caller, selection.doc_id, passage.row)
        words, cause = await _read(shared, selection, passage.row, job_id, seconds)
    answer = PageBoxesAnswer(
        doc_id=selection.doc_id,
        page=selection.page,
        chunk_id=selection.chunk_id if passage.is_passage else None,
        state="ready" if words else "none",
        cause=cause or (NO_PDF if job_id is None else None),
    )
    if words is None:
        pending = job_id is not None and cause is None
        waiting = {"state": "pending", "job_id": str(job_id)} if pending else {}
        return answer.model_copy(update=waiting)
    if not words:
        return answer.model_copy(update={"cause": NO_WORDS})
    return await asyncio.to_thread(_boxed, answer, passage, words, selection.query)


def _boxed(
    answer: PageBoxesAnswer, passage: PagePassage, words: tuple[PageWord, ...], query: str
) -> PageBoxesAnswer:
    """In a thread: a full page takes some 10 ms."""
    alignment = PageAlignment(passage.row.text, words)
    part = passage.row.text[passage.start : passage.end]
    language = passage.document.language or "simple"
    marked = highlighted(part, language, query) if query else []
    found = alignment.boxes([(passage.start, passage.end)]) if passage.is_passage else []
    in_page = [(passage.start + start, passage.start + end) for start, end in marked]
    return answer.model_copy(
        update={
            "passage": [BoxView(**box._asdict()) for box in found],
            "words": [BoxView(**box._asdict()) for box in alignment.boxes(in_page)],
            "cause": NOT_FOUND if passage.is_passage and not found else None,
        }
    )


async def _passage(conn: Connection, caller: Principal, selection: PassageSelection) -> PagePassage:
    document = await readable_document(conn, caller, selection.doc_id)
    page = selection.page
    row = await page_words.find(conn, selection.doc_id, page) if 0 < page < 2**31 else None
    if row is None:
        raise no_page(document, page)
    whole = PagePassage(document, row, 0, len(row.text), is_passage=False)
    if selection.chunk_id is None:
        return whole
    chunk = await chunk_listing.one(conn, document.container_id, selection.chunk_id)
    if chunk is None or chunk.doc_id != selection.doc_id:
        raise NotFound(
            f"document '{selection.doc_id}' has no chunk '{selection.chunk_id}'",
            chunk_id=str(selection.chunk_id),
        )
    if chunk.modality != Modality.TEXT or chunk.generated is not None:
        return whole  # of the whole page, or not in its text
    start, end = (
        min(max(offset - row.text_start, 0), len(row.text))
        for offset in (chunk.offset_start, chunk.offset_end)
    )
    return replace(whole, start=start, end=end, is_passage=start < end)


async def _requested(
    shared: Gateway, caller: Principal, doc_id: UUID, row: PageWordsRow
) -> JobId | None:
    """The job that reads the words; None if there is no PDF to read."""
    async with shared.stack.db.transaction() as conn:
        await shared.quotas.check_queue(conn, caller)
        job_id = await request_page_words(conn, doc_id, row, principal=caller.name)
    if job_id is not None:
        shared.stack.wake()
    return job_id


async def _read(
    shared: Gateway,
    selection: PassageSelection,
    row: PageWordsRow,
    job_id: JobId | None,
    seconds: float,
) -> tuple[tuple[PageWord, ...] | None, str | None]:
    """The words when the job has read them, or why it failed; neither after the time limit."""
    if job_id is None:
        return None, None
    job = await ended(shared.stack, job_id, seconds)
    async with shared.stack.db.reading() as conn:
        found = await page_words.find(conn, selection.doc_id, selection.page)
    words = found.placed() if found is not None and found.generation == row.generation else None
    if words is None and job is not None and job.state is JobState.FAILED:
        return None, job.cause.message if job.cause else f"job {job_id} failed"
    return words, None
