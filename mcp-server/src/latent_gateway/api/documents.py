"""Documents: list, show, delete; their chunks and their pages."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Response

from latent_core.domain.errors import Invalid, NotFound
from latent_core.domain.text import Text
from latent_core.generations.delete import delete_documents, delete_records
from latent_core.registry import audit, chunks, documents, pages
from latent_core.registry.connection import Connection
from latent_gateway.answers import json_answer
from latent_gateway.api import cursors
from latent_gateway.api.bodies import (
    ChunkPage,
    ChunkView,
    DocumentAnswer,
    DocumentPage,
    JobAccepted,
    PageAnswer,
    PageView,
)
from latent_gateway.auth import access
from latent_gateway.auth.principal import Principal
from latent_gateway.context import Caller, RequestId, Shared, SignedLinks
from latent_gateway.search.render import place_view

router = APIRouter(tags=["documents"])

Limit = Annotated[int, Query(ge=1, le=cursors.MAX_PAGE)]
Cursor = Annotated[str | None, Query(max_length=128)]


def _unknown(doc_id: UUID) -> NotFound:
    return NotFound(f"document '{doc_id}' does not exist or may not be read", doc_id=str(doc_id))


@router.get("/v1/containers/{container_id}/documents", response_model=DocumentPage)
async def list_documents(
    container_id: str,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    limit: Limit = 100,
    cursor: Cursor = None,
    uri_prefix: Annotated[Text | None, Query(max_length=4096)] = None,
) -> Response:
    """Documents in id order."""
    after = _after(cursor)
    async with shared.stack.db.transaction() as conn:
        container = await access.readable_one(conn, caller, container_id)
        found = await documents.page(
            conn, container.id, after=after, limit=limit + 1, uri_prefix=uri_prefix
        )
    more = cursors.encode(found[limit - 1].doc_id) if len(found) > limit else None
    return json_answer(DocumentPage(documents=found[:limit], next_cursor=more), request_id)


def _after(cursor: str | None) -> UUID | None:
    if cursor is None:
        return None
    try:
        return UUID(cursors.decode(cursor))
    except ValueError as exc:
        raise Invalid("the cursor is not one of ours: begin again without it") from exc


@router.get("/v1/containers/{container_id}/documents/{doc_id}", response_model=DocumentAnswer)
async def show(
    container_id: str, doc_id: UUID, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """One document."""
    async with shared.stack.db.transaction() as conn:
        container = await access.readable_one(conn, caller, container_id)
        found = await documents.view(conn, doc_id)
    if found is None or found.container_id != container.id:
        raise _unknown(doc_id)
    return json_answer(DocumentAnswer(document=found), request_id)


@router.delete(
    "/v1/containers/{container_id}/documents/{doc_id}", response_model=JobAccepted, status_code=202
)
async def delete(
    container_id: str, doc_id: UUID, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Delete a document, with the records that came from it: invisible at once, removed by the job."""
    lease = shared.settings.lease_seconds
    async with shared.stack.db.transaction() as conn:
        container = await access.writable(conn, caller, container_id)
        found = await documents.view(conn, doc_id)
        if found is None or found.container_id != container.id:
            raise _unknown(doc_id)
        deleted = await delete_documents(
            conn, container.id, [doc_id], principal=caller.name, lease_seconds=lease
        )
        if deleted is None:
            raise _unknown(doc_id)
        await audit.note(
            conn,
            principal=caller.name,
            action="document.delete",
            container_id=container.id,
            object_=found.source_uri,
            request_id=request_id,
        )
    await delete_records(
        shared.stack.db,
        container.id,
        deleted.corpora,
        principal=caller.name,
        lease_seconds=lease,
    )
    shared.stack.wake()
    return json_answer(JobAccepted(job_id=deleted.job_id), request_id, status=202)


@router.get("/v1/containers/{container_id}/chunks", response_model=ChunkPage)
async def list_chunks(
    container_id: str,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    doc_id: UUID | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Visible chunks in the order they were stored, whole: raw text, embedded text, place, lineage."""
    after = cursors.decode_int(cursor, -1)
    async with shared.stack.db.transaction() as conn:
        container = await access.readable_one(conn, caller, container_id)
        rows = await chunks.page(conn, container.id, doc_id=doc_id, after=after, limit=limit + 1)
    more = cursors.encode(rows[limit - 1]["ord"]) if len(rows) > limit else None
    return json_answer(
        ChunkPage(chunks=[_chunk(r) for r in rows[:limit]], next_cursor=more), request_id
    )


def _chunk(row: dict[str, Any]) -> ChunkView:
    return ChunkView(
        chunk_id=row["id"],
        doc_id=row["doc_id"],
        source_uri=row["uri"],
        ord=row["ord"],
        ordinal=row["ordinal"],
        modality=row["modality"],
        source_type=row["source_type"],
        block_type=row["block_type"],
        text=row["text"],
        embed_text=row["embed_text"],
        place=place_view(row),
        offsets=(row["offset_start"], row["offset_end"]),
        content_hash=row["content_hash"],
        token_count=row["token_count"],
        provenance=row["provenance"],
        meta=row["meta"],
        indexed_at=row["created_at"],
    )


@router.get("/v1/documents/{doc_id}/pages/{page}", response_model=PageAnswer)
async def show_page(
    doc_id: UUID,
    page: int,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    links: SignedLinks,
) -> Response:
    """One page of the live generation: its text and a link to its image."""
    async with shared.stack.db.transaction() as conn:
        await _readable_document(conn, caller, doc_id)
        row = await pages.one(conn, doc_id, page) if 0 < page < 2**31 else None
    if row is None:
        raise NotFound(f"document '{doc_id}' has no page {page}", doc_id=str(doc_id), page=page)
    uri = (
        links.page_image(row["image_sha256"], row["mime"], row["filename"])
        if row["image_sha256"]
        else None
    )
    view = PageView(
        page=row["page"],
        pages=row["pages"],
        text=row["text"],
        width=row["width"],
        height=row["height"],
        page_uri=uri,
        page_image="ready" if uri else "pending",
    )
    return json_answer(PageAnswer(page=view), request_id)


async def _readable_document(conn: Connection, caller: Principal, doc_id: UUID) -> None:
    """The same answer for a document that is not there and one in a container that may not be read."""
    found = await documents.view(conn, doc_id)
    if found is None:
        raise _unknown(doc_id)
    try:
        await access.readable_one(conn, caller, found.container_id)
    except NotFound as exc:
        raise _unknown(doc_id) from exc
