"""The source of a search for similar texts: a document or chunk that the caller may read."""

from __future__ import annotations

from uuid import UUID

from latent_core.db.connection import Connection, deadline
from latent_core.db.documents import documents, similar
from latent_core.domain.errors import NotFound
from latent_core.search.like import LikeSource, like_source
from latent_core.search.readable import Readable
from latent_core.wire.search import LikeReference
from latent_gateway.auth import access
from latent_gateway.auth.principal import Principal
from latent_gateway.context import Gateway


async def source_of(shared: Gateway, caller: Principal, like: LikeReference) -> LikeSource:
    """What ``like`` names. ``NotFound`` both for what is missing and for what the caller may not read."""
    seconds = shared.settings.search_seconds
    with deadline(seconds):
        async with shared.stack.db.reading() as conn:
            doc_id, container = await _readable_source(conn, caller, like)
        stores = shared.stack.search_stores(shared.queries)
        return await like_source(stores, container, doc_id, like.chunk_id, vector_seconds=seconds)


async def _readable_source(
    conn: Connection, caller: Principal, like: LikeReference
) -> tuple[UUID, Readable]:
    doc_id = like.doc_id
    if like.chunk_id is not None:
        doc_id = await similar.document_of(conn, like.chunk_id)
    document = await documents.view(conn, doc_id) if doc_id is not None else None
    container = await access.readable_of(conn, caller, document.container_id if document else None)
    if doc_id is None or container is None:
        kind, named = ("document", like.doc_id) if like.doc_id else ("chunk", like.chunk_id)
        raise NotFound(
            f"like: {kind} '{named}' does not exist, or you may not read it",
            **{f"{kind}_id": str(named)},
        )
    return doc_id, container
