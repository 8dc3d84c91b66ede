"""The tab Processing of a container: how far PDFs, page extraction and summaries are, and what starts them."""

from __future__ import annotations

from typing import Annotated, Any, Final
from urllib.parse import urlencode
from uuid import UUID

from fastapi import Form, Query, Request, Response

from latent_core.domain.errors import Invalid
from latent_core.domain.pdf_status import PdfState, SelectedDocument
from latent_core.wire.pages import MAX_SELECTED, PdfStatusPage, ProcessAnswer, ProcessBody
from latent_core.wire.understanding import (
    ExtractAnswer,
    ExtractBody,
    SummariseAnswer,
    SummariseBody,
    UnderstandingPage,
)
from latent_gateway.api import processing as api, summaries, understanding
from latent_gateway.auth import access
from latent_gateway.console.frame.console_session import ConsoleSession, SignedIn, session_of
from latent_gateway.console.frame.live import LiveFragment, live
from latent_gateway.console.frame.rights import rights_of
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.frame.text_format import amount
from latent_gateway.console.frame.view import done, draw, page
from latent_gateway.context import Gateway, Shared

router = pages()

DOCUMENTS: Final = 50
Status = Annotated[str, Query(max_length=16)]
Cursor = Annotated[str, Query(max_length=128)]
Chosen = Annotated[list[UUID] | None, Form(max_length=MAX_SELECTED)]


@router.get("/console/containers/{container_id}/processing")
async def processing_page(
    container_id: str,
    shared: Shared,
    session: SignedIn,
    status: Status = "",
    cursor: Cursor = "",
    models: Cursor = "",
) -> Response:
    """``cursor``: of the PDFs; ``models``: of the documents that language models read."""
    shown = await _state(shared, session, container_id, status, cursor, models)
    given = {"status": status, "cursor": cursor, "models": models}
    query = urlencode({name: value for name, value in given.items() if value})
    return page(
        "operations/processing.html",
        session,
        **shown,
        tab="processing",
        states=[state.value for state in PdfState],
        stream=f"/console/containers/{container_id}/processing/live?{query}",
    )


@router.get("/console/containers/{container_id}/processing/live")
async def processing_live(
    container_id: str,
    request: Request,
    shared: Shared,
    session: SignedIn,
    status: Status = "",
    cursor: Cursor = "",
    models: Cursor = "",
) -> Response:
    """Totals and documents after each change."""
    await _state(shared, session, container_id, status, cursor, models)

    async def look() -> LiveFragment:
        again = await session_of(request, shared)
        shown = await _state(shared, again, container_id, status, cursor, models)
        html = draw("operations/processingstate.html", session=again, **shown)
        return LiveFragment(html, ended=False)

    return live(shared, session, look)


async def _state(
    shared: Gateway,
    session: ConsoleSession,
    container_id: str,
    status: str,
    cursor: str,
    models: str,
) -> dict[str, Any]:
    async with shared.stack.db.reading() as conn:
        container = await access.owned(conn, session.principal, container_id)
    states = [state for state in PdfState if state.value == status] or None
    answer = await api.status_of_pdfs(
        shared,
        session.principal,
        session.request_id,
        container.id,
        states,
        DOCUMENTS,
        cursor or None,
    )
    pdfs = PdfStatusPage.model_validate_json(bytes(answer.body))
    totals = pdfs.totals or await _totals(shared, session, container.id)
    manifest = container.manifest
    reads = manifest.extraction.enabled or manifest.summaries.enabled
    described = None
    if reads:
        found = await understanding.status_of_understanding(
            shared, session.principal, session.request_id, container.id, DOCUMENTS, models or None
        )
        described = UnderstandingPage.model_validate_json(bytes(found.body))
    return {
        "container": container,
        "rights": rights_of(session.principal, container),
        "totals": totals,
        "pdfs": pdfs.documents,
        "following": pdfs.next_cursor,
        "described": described,
        "captions": manifest.captions.provider if manifest.captions.enabled else None,
        "chosen_state": status,
    }


async def _totals(shared: Gateway, session: ConsoleSession, container_id: str) -> Any:
    """Only a first page has them."""
    answer = await api.status_of_pdfs(
        shared, session.principal, session.request_id, container_id, None, 1, None
    )
    return PdfStatusPage.model_validate_json(bytes(answer.body)).totals


def _check_chosen(chosen: list[UUID] | None) -> list[UUID]:
    if not chosen:
        raise Invalid("no document is chosen: tick some, then try again")
    return chosen


def _back(container_id: str, notice: str) -> Response:
    return done(f"/console/containers/{container_id}/processing", notice)


def _outcome(documents: list[SelectedDocument], verb: str) -> str:
    """What became of the chosen documents, in one sentence."""
    counts: dict[str, int] = {}
    for one in documents:
        counts[one.action.value] = counts.get(one.action.value, 0) + 1
    words = {
        "queued": f"{verb} now",
        "joined": "in work already",
        "none": "complete already",
        "refused": "refused",
    }
    words_of = [
        f"{amount(counts[key], 'document')} {word}" for key, word in words.items() if key in counts
    ]
    cause = next((one.cause for one in documents if one.cause), None)
    return f"{', '.join(words_of)}.{f' {cause}' if cause else ''}"


@router.post("/console/containers/{container_id}/processing")
async def process(
    container_id: str, shared: Shared, session: SignedIn, doc: Chosen = None
) -> Response:
    """Read and draw the chosen PDFs to their end."""
    body = ProcessBody(container_id=container_id, doc_ids=_check_chosen(doc), stream=False)
    answer = await api.process_selected(body, shared, session.principal, session.request_id)
    found = ProcessAnswer.model_validate_json(bytes(answer.body))
    return _back(container_id, _outcome(found.documents, "processed"))


@router.post("/console/containers/{container_id}/processing/extract")
async def extract(
    container_id: str,
    shared: Shared,
    session: SignedIn,
    doc: Chosen = None,
    force: Annotated[bool, Form()] = False,
) -> Response:
    """Have the pages of the chosen documents described."""
    body = ExtractBody(
        container_id=container_id, doc_ids=_check_chosen(doc), force=force, stream=False
    )
    answer = await understanding.extract(body, shared, session.principal, session.request_id)
    found = ExtractAnswer.model_validate_json(bytes(answer.body))
    return _back(container_id, _outcome(found.documents, "described"))


@router.post("/console/containers/{container_id}/processing/summarise")
async def summarise(
    container_id: str,
    shared: Shared,
    session: SignedIn,
    doc: Chosen = None,
    force: Annotated[bool, Form()] = False,
) -> Response:
    """Have the chosen documents summarised."""
    body = SummariseBody(container_id=container_id, doc_ids=_check_chosen(doc), force=force)
    answer = await summaries.summarise(body, shared, session.principal, session.request_id)
    found = SummariseAnswer.model_validate_json(bytes(answer.body))
    return _back(container_id, f"{amount(len(found.jobs), 'document')} summarised now.")
