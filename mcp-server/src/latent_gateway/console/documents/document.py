"""The page of a document: the image of a page with the passage boxed on it, the text beside it, and its history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import urlencode
from uuid import UUID

from fastapi import Query, Request, Response
from fastapi.responses import RedirectResponse

from latent_core.db.connection import Connection
from latent_core.db.documents import document_history, document_listing, outline, pages as page_rows
from latent_core.db.documents.document_history import IngestRow
from latent_core.db.documents.document_listing import DocumentFilter
from latent_core.domain.chunk import SourceType
from latent_core.domain.document import DocumentView
from latent_core.domain.document_order import DocumentOrder
from latent_core.domain.errors import LatentError, NotFound
from latent_core.domain.note import is_note, versions_prefix
from latent_core.domain.text import Text
from latent_core.wire.pages import PageBoxesAnswer
from latent_core.wire.search import MAX_QUERY_CHARS
from latent_gateway.api.originals import original_of
from latent_gateway.api.page_boxes import PassageSelection, boxes_of
from latent_gateway.api.pages import FoundPage, page_of, readable_document
from latent_gateway.auth import access
from latent_gateway.console.documents.passages import excerpt, passages
from latent_gateway.console.documents.rendering import renderer_of
from latent_gateway.console.frame.console_session import ConsoleSession, SignedIn
from latent_gateway.console.frame.rights import ContainerRights, rights_of
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.frame.view import page
from latent_gateway.context import BlobLinks, Gateway, Shared

router = pages()

THUMBNAILS: Final = 24
SECTIONS: Final = 200
INGESTS: Final = 10
VERSIONS: Final = 20
BOX_SECONDS: Final = 8.0
BOXED: Final = frozenset({SourceType.PDF, SourceType.IMAGE})
"""The pages of others are drawn from their text."""
MarkedWords = Annotated[Text, Query(max_length=MAX_QUERY_CHARS)]


@dataclass(frozen=True, slots=True)
class PageImageView:
    """The image of a page, or why there is none."""

    page: int
    uri: str | None
    width: int | None
    height: int | None


@dataclass(frozen=True, slots=True)
class DocumentHistory:
    """What became of a document so far, newest first."""

    ingests: list[IngestRow]
    versions: list[DocumentView]
    """The former texts of a note."""


@router.get("/console/documents/{doc_id}")
async def document_page(
    doc_id: UUID,
    request: Request,
    shared: Shared,
    session: SignedIn,
    number: Annotated[int | None, Query(alias="page", ge=1, lt=2**31)] = None,
    chunk: UUID | None = None,
    after: Annotated[int, Query(ge=-1, lt=2**62)] = -1,
    q: MarkedWords = "",
) -> Response:
    """With ``chunk``, the page is the one that contains it, and its passage is marked; ``q`` marks words."""
    async with shared.stack.db.reading() as conn:
        document = await readable_document(conn, session.principal, doc_id)
        rights = await _rights(conn, session, document)
        found = await excerpt(conn, document, chosen=chunk, after=after, page=number)
        number = number or found.page or 1
        strip = await page_rows.listed(
            conn, doc_id, after=max(0, number - 1 - THUMBNAILS // 4), limit=THUMBNAILS
        )
        sections = await outline.sections(conn, doc_id, SECTIONS)
        history = await _history(conn, document)
    shown = await _page(shared, session, document, number)
    selection = PassageSelection(doc_id, number, found.chosen, q)
    return page(
        "documents/document.html",
        session,
        document=document,
        rights=rights,
        shown=shown,
        picture=picture(shown.row, session.links) if shown else None,
        boxes=await _boxes(shared, session, document, selection)
        if shown and (found.chosen or q)
        else None,
        boxes_path=_boxes_path(selection),
        number=number,
        q=q,
        strip=[picture(row, session.links) for row in strip],
        others=document.pages > THUMBNAILS,
        chunks=found,
        passages=await passages(renderer_of(request), document, found.found, q),
        sections=[one for one in sections if one.heading_path],
        history=history,
        lineage=found.found[0].provenance if found.found else {},
    )


@router.get("/console/documents/{doc_id}/boxes")
async def boxes_part(
    doc_id: UUID,
    shared: Shared,
    session: SignedIn,
    number: Annotated[int, Query(alias="page", ge=1, lt=2**31)],
    chunk: UUID | None = None,
    q: MarkedWords = "",
) -> Response:
    """The boxes of a passage, once the words of the page are read: a part for the image."""
    selection = PassageSelection(doc_id, number, chunk, q)
    found = await boxes_of(shared, session.principal, selection, BOX_SECONDS)
    return page("documents/boxes.html", session, boxes=found)


@router.get("/console/documents/{doc_id}/original")
async def download_original(doc_id: UUID, shared: Shared, session: SignedIn) -> Response:
    """To a link that is valid for five minutes: one in the page would expire while the page is open."""
    found = await original_of(shared, session.principal, doc_id, session.links)
    return RedirectResponse(found.url, status_code=303)


def picture(row: Mapping[str, Any], links: BlobLinks) -> PageImageView:
    """The image of a page row."""
    drawn = row["image_sha256"] and row["mime"]
    uri = (
        links.page_image(row["bucket"], row["image_sha256"], row["mime"], row["filename"])
        if drawn
        else None
    )
    return PageImageView(row["page"], uri, row["width"], row["height"])


async def _rights(
    conn: Connection, session: ConsoleSession, document: DocumentView
) -> ContainerRights:
    container = await access.readable_one(conn, session.principal, document.container_id)
    return rights_of(session.principal, container)


async def _history(conn: Connection, document: DocumentView) -> DocumentHistory:
    versions: list[DocumentView] = []
    if is_note(document.source_uri):
        versions = await document_listing.listed(
            conn,
            document.container_id,
            DocumentFilter(uri_prefix=versions_prefix(document.source_uri)),
            DocumentOrder.NEWEST,
            limit=VERSIONS,
        )
    ingests = await document_history.ingests(conn, document.doc_id, INGESTS)
    return DocumentHistory(ingests, versions)


async def _page(
    shared: Gateway, session: ConsoleSession, document: DocumentView, number: int
) -> FoundPage | None:
    """None for a document without pages (yet)."""
    try:
        return await page_of(shared, session.principal, document.doc_id, number)
    except NotFound:
        if number > 1:
            raise
        return None


async def _boxes(
    shared: Gateway, session: ConsoleSession, document: DocumentView, selection: PassageSelection
) -> PageBoxesAnswer | None:
    """At once, or pending: then a script asks for the part. Without boxes the page shows the text."""
    if document.source_type not in BOXED:
        return None
    try:
        return await boxes_of(shared, session.principal, selection, 0)
    except LatentError:
        return None


def _boxes_path(selection: PassageSelection) -> str:
    query = {"page": selection.page, "chunk": selection.chunk_id, "q": selection.query}
    given = urlencode({key: value for key, value in query.items() if value})
    return f"/console/documents/{selection.doc_id}/boxes?{given}"
