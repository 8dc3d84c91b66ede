"""``POST /v1/containers/search``, its alias ``POST /v1/search``, and ``POST /v1/doc_search`` (documents, no code)."""

from __future__ import annotations

import logging

from fastapi import APIRouter, Response

from latent_core.db.connection import deadline
from latent_core.domain.errors import Issue, IssueCode, NotFound
from latent_core.search.service import SearchService
from latent_core.wire.documents import DOCUMENTS, DocSearchBody
from latent_core.wire.search import MAX_CONTAINERS, SearchRequest, SearchResponse
from latent_gateway.api.query_image import query_image
from latent_gateway.auth import access
from latent_gateway.auth.principal import Principal
from latent_gateway.context import BlobLinks, Caller, Gateway, RequestId, Shared, SignedLinks
from latent_gateway.envelope import json_answer

router = APIRouter(tags=["search"])
logger = logging.getLogger(__name__)


@router.post("/v1/containers/search", response_model=SearchResponse)
@router.post("/v1/search", response_model=SearchResponse, name="search_alias")
async def search(
    body: SearchRequest, shared: Shared, caller: Caller, request_id: RequestId, links: SignedLinks
) -> Response:
    """Search chunks in one or several containers by meaning, by words, by both, or by an image."""
    return json_answer(await find(body, shared, caller, request_id, links), request_id)


async def find(
    body: SearchRequest, shared: Gateway, caller: Principal, request_id: str, links: BlobLinks
) -> SearchResponse:
    """The answer to ``body`` for a principal; ``NotFound`` names a container that it may not read."""
    with deadline(shared.settings.search_seconds):
        async with shared.stack.db.reading() as conn:
            readable = await access.searchable(conn, caller, body.containers)
    image = (
        await query_image(shared, caller, body, readable) if body.image_ref is not None else None
    )
    answer = await SearchService(
        shared.stack.search_stores(shared.queries),
        links,
        shared.settings.search_seconds,
        shared.stack.metrics,
        shared.limiter,
    ).search(body, readable, image)
    logger.info(
        "search_completed",
        extra={
            "request_id": request_id,
            "containers": list(readable),
            "hits": len(answer.hits),
            "latency_ms": round(sum(v for k, v in answer.timings.items() if k != "embed"), 2),
            "partial": answer.partial,
        },
    )
    return answer


def of_all(answer: SearchResponse, containers: int) -> SearchResponse:
    """The answer to a search of all containers: partial if there are more than one search can cover."""
    if containers <= MAX_CONTAINERS:
        return answer
    skipped_containers = Issue(
        code=IssueCode.POLICY,
        message=f"Searched the first {MAX_CONTAINERS} of {containers} containers (the limit). List the ones you need.",
    )
    return answer.model_copy(
        update={"partial": True, "issues": [*answer.issues, skipped_containers]}
    )


@router.post("/v1/doc_search", response_model=SearchResponse)
async def doc_search(
    body: DocSearchBody, shared: Shared, caller: Caller, request_id: RequestId, links: SignedLinks
) -> Response:
    """Search documents of some formats, in all containers unless the request names some."""
    container_ids = body.containers
    if container_ids is None:
        with deadline(shared.settings.search_seconds):
            async with shared.stack.db.reading() as conn:
                container_ids = [c.id for c in await access.all_searchable(conn, caller)]
    if not container_ids:
        raise NotFound("there is no container that you may read: create one first")
    request = SearchRequest(
        containers=container_ids[:MAX_CONTAINERS],
        query=body.query,
        top_k=body.limit,
        filters={"source_type": {"in": [f.value for f in body.formats or DOCUMENTS]}},
    )
    answer = await find(request, shared, caller, request_id, links)
    if body.containers is None:
        answer = of_all(answer, len(container_ids))
    return json_answer(answer, request_id)
