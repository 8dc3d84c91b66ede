"""``POST /v1/doc_search``: documents alone, without code (CONTRACT "Retrieval")."""

from __future__ import annotations

from fastapi import APIRouter, Response

from latent_core.domain.errors import NotFound
from latent_core.domain.query import (
    MAX_CONTAINERS,
    SearchRequest,
    SearchResponse,
)
from latent_core.wire.doc_search import DOCUMENTS, DocSearchBody
from latent_gateway.api import search
from latent_gateway.auth import access
from latent_gateway.context import Caller, RequestId, Shared, SignedLinks
from latent_gateway.envelope import json_answer

router = APIRouter(tags=["search"])


@router.post("/v1/doc_search", response_model=SearchResponse)
async def doc_search(
    body: DocSearchBody, shared: Shared, caller: Caller, request_id: RequestId, links: SignedLinks
) -> Response:
    """Find documents of some formats, in all containers unless some are named."""
    container_ids = body.containers
    if container_ids is None:
        async with shared.stack.db.reading() as conn:
            container_ids = [c.id for c in await access.all_searchable(conn, caller)]
    if not container_ids:
        raise NotFound("there is no container that may be read; create one first")
    request = SearchRequest(
        containers=container_ids[:MAX_CONTAINERS],
        query=body.query,
        top_k=body.limit,
        filters={"source_type": {"in": [f.value for f in body.formats or DOCUMENTS]}},
    )
    answer = await search.find(request, shared, caller, request_id, links)
    if body.containers is None:
        answer = search.of_all(answer, len(container_ids))
    return json_answer(answer, request_id)
