"""Sources of a container (``docs/folders.md``): list, find the one that a folder was synced from, create, take over, forget."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter, Response

from latent_core.db import audit, sources
from latent_core.db.connection import Connection
from latent_core.db.documents import folder_listings
from latent_core.db.documents.folder_listings import UriSpan
from latent_core.domain.errors import Conflict, NotFound
from latent_core.domain.source import MAX_NAMESAKES, MAX_ROOT_CHARS, numbered, prefix_of
from latent_core.domain.token import Scope
from latent_core.wire.sources import (
    ForgetSourceAnswer,
    SourceAnswer,
    SourceBody,
    SourceList,
    SourceMatchBody,
    SourceMatches,
    SourcePlaceBody,
    SourceView,
)
from latent_gateway.auth import access
from latent_gateway.context import Caller, RequestId, Shared
from latent_gateway.deletions import MAX_DELETIONS, VanishedDocument, delete_batch, deletions
from latent_gateway.envelope import json_answer

router = APIRouter(tags=["ingest"])


@router.get("/v1/containers/{container_id}/sources", response_model=SourceList)
async def list_sources(
    container_id: str, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """The folders that are synced into a container. For writers only: it shows paths of their computers."""
    async with shared.stack.db.transaction() as conn:
        container = await access.permitted(conn, caller, container_id, Scope.WRITE)
        found = await sources.with_documents(conn, container.id)
    return json_answer(SourceList(sources=found), request_id)


@router.post("/v1/containers/{container_id}/sources/match", response_model=SourceMatches)
async def match_sources(
    container_id: str,
    body: SourceMatchBody,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
) -> Response:
    """Compare hashes of a folder's files with the documents of every source."""
    async with shared.stack.db.transaction() as conn:
        container = await access.permitted(conn, caller, container_id, Scope.WRITE)
        found = await sources.matches(conn, container.id, body.root, sorted(set(body.sha256)))
    return json_answer(SourceMatches(matches=found), request_id)


@router.post("/v1/containers/{container_id}/sources", response_model=SourceAnswer, status_code=201)
async def create_source(
    container_id: str, body: SourceBody, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Create a source with the first free root: ``notes``, ``notes~2``, ``notes~3``."""
    async with shared.stack.db.transaction() as conn:
        container = await access.writable(conn, caller, container_id)
        await access.held(conn, container)
        source = await _inserted(conn, container.id, body)
        await audit.note(
            conn,
            principal=caller.name,
            token_id=caller.token_id,
            action="source.create",
            container_id=container.id,
            object_=source.root,
            request_id=request_id,
        )
    return json_answer(SourceAnswer(source=source), request_id, status=201)


async def _inserted(conn: Connection, container_id: str, body: SourceBody) -> SourceView:
    for number in range(1, MAX_NAMESAKES + 1):
        root = numbered(body.root, number)
        if len(root) > MAX_ROOT_CHARS:
            break
        source = await sources.insert(
            conn,
            container_id,
            root,
            host=body.host,
            folder=body.folder,
            adopt=body.adopt and number == 1,
        )
        if source is not None:
            return source
    raise Conflict(
        f"Too many sources of container '{container_id}' have the name '{body.root[:80]}'. Choose another root name."
    )


@router.put("/v1/containers/{container_id}/sources/{source_id}", response_model=SourceAnswer)
async def take_over_source(
    container_id: str,
    source_id: UUID,
    body: SourcePlaceBody,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
) -> Response:
    """Continue a source from another place. Its id changes, so that the former place no longer syncs it."""
    async with shared.stack.db.transaction() as conn:
        container = await access.writable(conn, caller, container_id)
        await access.held(conn, container)
        source = await sources.take_over(
            conn, container.id, source_id, host=body.host, folder=body.folder
        )
        if source is None:
            raise _unknown(container.id, source_id)
        await audit.note(
            conn,
            principal=caller.name,
            token_id=caller.token_id,
            action="source.take_over",
            container_id=container.id,
            object_=source.root,
            request_id=request_id,
        )
    return json_answer(SourceAnswer(source=source), request_id)


@router.delete(
    "/v1/containers/{container_id}/sources/{source_id}", response_model=ForgetSourceAnswer
)
async def forget_source(
    container_id: str,
    source_id: UUID,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    delete_documents: bool = False,
) -> Response:
    """Forget a source. Its documents stay, unless ``delete_documents``: then they are deleted first."""
    scope = Scope.DELETE if delete_documents else Scope.WRITE
    async with shared.stack.db.transaction() as conn:
        container = await access.writable(conn, caller, container_id, scope=scope)
        source = await sources.find(conn, container.id, source_id)
        if source is None:
            raise _unknown(container.id, source_id)
        span = UriSpan(prefix_of(source.root))
        found = (
            await folder_listings.vanished(conn, container.id, span, [], MAX_DELETIONS + 1)
            if delete_documents
            else []
        )
    batches = list(deletions([VanishedDocument(doc_id, uri) for doc_id, uri in found]))
    jobs: list[int] = []
    for batch in batches:
        jobs += await delete_batch(shared, caller, container, batch, request_id)
    async with shared.stack.db.transaction() as conn:
        await access.held(conn, container)
        documents = await folder_listings.count_documents(conn, container.id, span.prefix)
        partial = delete_documents and documents > 0
        if not partial:
            await _forget(conn, caller, container.id, source, request_id)
    answer = ForgetSourceAnswer(
        source=source,
        documents=documents,
        deleted=sum(map(len, batches)),
        delete_jobs=jobs,
        partial=partial,
    )
    return json_answer(answer, request_id)


async def _forget(
    conn: Connection, caller: Caller, container_id: str, source: SourceView, request_id: str
) -> None:
    if not await sources.delete(conn, container_id, source.source_id):
        raise _unknown(container_id, source.source_id)
    await audit.note(
        conn,
        principal=caller.name,
        token_id=caller.token_id,
        action="source.forget",
        container_id=container_id,
        object_=source.root,
        request_id=request_id,
    )


def _unknown(container_id: str, source_id: UUID) -> NotFound:
    return NotFound(
        f"Container '{container_id}' has no source {source_id}. Another client may have taken it over."
    )
