"""The page of a document: a page image next to its text, its chunks, and its provenance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import Query, Response
from fastapi.responses import RedirectResponse

from latent_core.db.connection import Connection
from latent_core.db.documents import chunk_listing, pages as page_rows
from latent_core.db.documents.chunk_listing import ChunkSelection
from latent_core.domain.document import DocumentView
from latent_core.domain.errors import NotFound
from latent_core.wire.chunks import ChunkView
from latent_gateway.api.chunks import view
from latent_gateway.api.originals import original_of
from latent_gateway.api.pages import FoundPage, page_of, readable_document
from latent_gateway.console.frame.console_session import ConsoleSession, SignedIn
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.frame.view import page
from latent_gateway.context import BlobLinks, Gateway, Shared

router = pages()

CHUNKS: Final = 20
THUMBNAILS: Final = 24
SECONDS: Final = 2.0
"""Longer lists of chunks end early."""


@dataclass(frozen=True, slots=True)
class PageImageView:
    """The image of a page, or why there is none."""

    page: int
    uri: str | None
    width: int | None
    height: int | None


@dataclass(frozen=True, slots=True)
class ChunkExcerpt:
    """Some chunks of a document, in order."""

    found: list[ChunkView]
    following: int | None
    """The number after which the list continues."""
    chosen: UUID | None = None


@router.get("/console/documents/{doc_id}")
async def document_page(
    doc_id: UUID,
    shared: Shared,
    session: SignedIn,
    number: Annotated[int | None, Query(alias="page", ge=1, lt=2**31)] = None,
    chunk: UUID | None = None,
    after: Annotated[int, Query(ge=-1, lt=2**62)] = -1,
) -> Response:
    """With ``chunk``, the list starts there and the page is the one that contains it."""
    async with shared.stack.db.reading() as conn:
        document = await readable_document(conn, session.principal, doc_id)
        chunks = await _chunks(conn, document, chunk, after)
        number = number or _page_of(chunks) or 1
        strip = await page_rows.listed(
            conn, doc_id, after=max(0, number - 1 - THUMBNAILS // 4), limit=THUMBNAILS
        )
        others = document.pages > THUMBNAILS
    shown = await _page(shared, session, document, number)
    return page(
        "documents/document.html",
        session,
        document=document,
        shown=shown,
        picture=picture(shown.row, session.links) if shown else None,
        number=number,
        strip=[picture(row, session.links) for row in strip],
        others=others,
        chunks=chunks,
        lineage=chunks.found[0].provenance if chunks.found else {},
    )


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


async def _chunks(
    conn: Connection, document: DocumentView, chosen: UUID | None, after: int
) -> ChunkExcerpt:
    """Chunks from the chosen one on, else after the given number. A missing chunk is ignored: the document has
    changed."""
    if chosen is not None:
        row = await chunk_listing.one(conn, document.container_id, chosen)
        if row is not None and row.doc_id == document.doc_id:
            after = row.chunk_no - 1
        else:
            chosen = None
    found = await chunk_listing.find(
        conn,
        document.container_id,
        ChunkSelection(doc_id=document.doc_id),
        after=after,
        limit=CHUNKS,
        seconds=SECONDS,
    )
    return ChunkExcerpt([view(row) for row in found.rows], found.more_after, chosen)


def _page_of(chunks: ChunkExcerpt) -> int | None:
    """The page of the chosen chunk."""
    first = chunks.found[0] if chunks.found and chunks.chosen else None
    return first.place.page if first is not None else None
