"""The panel beside the hits: a passage with the words of the query marked, and the image of its page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final
from uuid import UUID

from fastapi import Query, Request, Response

from latent_core.bm25.analyser import query_terms, spans
from latent_core.db.documents import chunk_listing
from latent_core.domain.errors import NotFound
from latent_core.wire.chunks import ChunkView
from latent_core.wire.search import MAX_QUERY_CHARS
from latent_gateway.api.chunks import view
from latent_gateway.api.pages import FoundPage, page_of, readable_document
from latent_gateway.auth import access
from latent_gateway.console.documents.document import PageImageView, picture
from latent_gateway.console.frame.console_session import ConsoleSession, SignedIn
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.frame.view import page, wants_part
from latent_gateway.context import Gateway, Shared

router = pages()

MAX_LANGUAGES: Final = 3
MAX_MARKED_CHARS: Final = 20_000
Range = tuple[int, int]


@router.get("/console/search/panel")
async def panel(
    request: Request,
    shared: Shared,
    session: SignedIn,
    c: Annotated[str, Query(max_length=64)],
    chunk: UUID,
    number: Annotated[int | None, Query(alias="page", ge=1, lt=2**31)] = None,
    q: Annotated[str, Query(max_length=MAX_QUERY_CHARS)] = "",
) -> Response:
    """A part for scripts, a whole page without."""
    async with shared.stack.db.reading() as conn:
        container = await access.readable_one(conn, session.principal, c)
        row = await chunk_listing.one(conn, container.id, chunk)
        if row is None:
            raise NotFound("this passage is gone: the document has changed. Search again")
        document = await readable_document(conn, session.principal, row.doc_id)
    passage = view(row)
    found = await _page(shared, session, passage, number or passage.place.page)
    return page(
        "searching/panel.html" if wants_part(request) else "searching/panel_page.html",
        session,
        document=document,
        passage=passage,
        number=found.row["page"] if found else None,
        lack=found.lack if found else None,
        picture=_picture(found, session),
        marks=marks(passage.text, q, container.languages),
    )


async def _page(
    shared: Gateway, session: ConsoleSession, passage: ChunkView, number: int | None
) -> FoundPage | None:
    if number is None:
        return None
    try:
        return await page_of(shared, session.principal, passage.doc_id, number)
    except NotFound:
        return None


def _picture(found: FoundPage | None, session: ConsoleSession) -> PageImageView | None:
    return picture(found.row, session.links) if found is not None else None


def marks(text: str, query: str, languages: Sequence[str]) -> list[Range]:
    """Where ``text`` has words of the query."""
    found: set[Range] = set()
    for language in languages[:MAX_LANGUAGES]:
        terms = set(query_terms(query, [language]))
        found |= {
            (one.start, one.end)
            for one in spans(text[:MAX_MARKED_CHARS], language)
            if not terms.isdisjoint(one.terms)
        }
    return sorted(found)
