"""Pages of documents: their text, and links to their images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Response

from latent_core.db.connection import Connection
from latent_core.db.documents import documents, pages
from latent_core.db.documents.pages import NO_IMAGE, MissingImage
from latent_core.domain import cursors
from latent_core.domain.document import DocumentView
from latent_core.domain.errors import NotFound
from latent_core.wire.pages import ListedPage, PageAnswer, PagesPage, PageView
from latent_gateway.auth import access
from latent_gateway.auth.principal import Principal
from latent_gateway.context import BlobLinks, Caller, Gateway, RequestId, Shared, SignedLinks
from latent_gateway.middleware.conditional import IfNoneMatch, tagged_answer

router = APIRouter(tags=["documents"])


@router.get("/v1/documents/{doc_id}/pages", response_model=PagesPage)
async def list_pages(
    doc_id: UUID,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    links: SignedLinks,
    limit: Annotated[int, Query(ge=1, le=cursors.MAX_PAGE)] = 100,
    cursor: Annotated[str | None, Query(max_length=128)] = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Pages of the live generation in order, with links to their images and the images' sizes."""
    after = min(cursors.decode_int(cursor, 0), 2**31 - 1)
    async with shared.stack.db.transaction() as conn:
        document = await readable_document(conn, caller, doc_id)
        drawn = await _lack(
            conn, document
        )  # read before the pages: once the job is done, all of them exist
        rows = await pages.listed(conn, doc_id, after=after, limit=limit + 1)
        lack = drawn if drawn.drawing or not _complete(rows) else None
    answer = PagesPage(
        doc_id=doc_id,
        container_id=document.container_id,
        source_uri=document.source_uri,
        source_type=document.source_type,
        page_images="ready" if lack is None else lack.state,
        page_images_cause=None if lack is None else lack.cause,
        pages=[_listed(row, links, lack) for row in rows[:limit]],
        next_cursor=cursors.encode(rows[limit - 1]["page"]) if len(rows) > limit else None,
    )
    return tagged_answer(answer, request_id, if_none_match)


@router.get("/v1/documents/{doc_id}/pages/{page}", response_model=PageAnswer)
async def show_page(
    doc_id: UUID,
    page: int,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    links: SignedLinks,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """One page of the live generation, with its text and a link to its image."""
    found = await page_of(shared, caller, doc_id, page)
    return tagged_answer(PageAnswer(page=_view(found, links)), request_id, if_none_match)


@dataclass(frozen=True, slots=True)
class FoundPage:
    """A visible page, its document, and the state of a missing image."""

    row: Mapping[str, Any]
    document: DocumentView
    lack: MissingImage | None


async def page_of(shared: Gateway, caller: Principal, doc_id: UUID, page: int) -> FoundPage:
    """A page of the live generation; ``NotFound`` if there is none that the principal may read."""
    async with shared.stack.db.transaction() as conn:
        document = await readable_document(conn, caller, doc_id)
        row = await pages.one(conn, doc_id, page) if 0 < page < 2**31 else None
        lack = None if row and _complete([row]) else await _lack(conn, document)
    if row is None:
        raise no_page(document, page)
    return FoundPage(row, document, lack)


def no_page(document: DocumentView, page: int) -> NotFound:
    """The error for a page beyond the end."""
    pages = f"it has {document.pages}" if document.pages else "it has no pages"
    return NotFound(
        f"document '{document.doc_id}' has no page {page}: {pages}",
        doc_id=str(document.doc_id),
        page=page,
    )


def _view(found: FoundPage, links: BlobLinks) -> PageView:
    row, lack = found.row, found.lack
    return PageView(
        page=row["page"],
        pages=row["pages"],
        text=row["text"],
        width=row["width"],
        height=row["height"],
        page_uri=_link(row, links),
        page_image="ready" if lack is None else lack.state,
        page_image_cause=None if lack is None else lack.cause,
    )


async def readable_document(conn: Connection, caller: Principal, doc_id: UUID) -> DocumentView:
    """The document; ``NotFound`` both for a missing document and for one in a container that the caller may not
    read."""
    found = await documents.view(conn, doc_id)
    container = await access.readable_of(conn, caller, found.container_id if found else None)
    if found is None or container is None:
        raise NotFound(
            f"document '{doc_id}' does not exist, or you may not read it", doc_id=str(doc_id)
        )
    return found


def _complete(rows: Sequence[Mapping[str, Any]]) -> bool:
    return bool(rows) and all(row["image_sha256"] for row in rows)


async def _lack(conn: Connection, document: DocumentView) -> MissingImage:
    """The state of missing images. Records of a corpus have no pages."""
    if document.parent_id is not None:
        return NO_IMAGE
    return (await pages.lacks(conn, [document.doc_id])).get(document.doc_id, NO_IMAGE)


def _link(row: Mapping[str, Any], links: BlobLinks) -> str | None:
    if not row["image_sha256"]:
        return None
    return links.page_image(row["bucket"], row["image_sha256"], row["mime"], row["filename"])


def _listed(row: Mapping[str, Any], links: BlobLinks, lack: MissingImage | None) -> ListedPage:
    uri = _link(row, links)
    return ListedPage(
        page=row["page"],
        page_uri=uri,
        page_image="ready" if uri or lack is None else lack.state,
        sha256=row["image_sha256"],
        bytes=row["bytes"],
        mime=row["mime"],
        width=row["width"],
        height=row["height"],
    )
