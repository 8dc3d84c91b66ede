"""``POST /v1/doc_search``: documents alone, without code (CONTRACT "Retrieval")."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from latent_core.domain.chunk import SourceType
from latent_core.domain.errors import NotFound
from latent_core.domain.query import (
    MAX_CONTAINERS,
    MAX_QUERY_CHARS,
    MAX_TOP_K,
    SearchRequest,
    SearchResponse,
)
from latent_core.domain.text import Text
from latent_gateway.answers import json_answer
from latent_gateway.api import search
from latent_gateway.auth import access
from latent_gateway.context import Caller, RequestId, Shared, SignedLinks

router = APIRouter(tags=["search"])

DOCUMENTS: Final = (
    SourceType.MARKDOWN,
    SourceType.PDF,
    SourceType.WEB,
    SourceType.YAML,
    SourceType.JSON,
)


class DocSearchBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    query: Annotated[str, Field(min_length=1, max_length=MAX_QUERY_CHARS)]
    formats: Annotated[list[SourceType], Field(max_length=len(SourceType))] = list(DOCUMENTS)
    limit: Annotated[int, Field(ge=1, le=MAX_TOP_K)] = 10
    containers: Annotated[list[Text] | None, Field(min_length=1, max_length=MAX_CONTAINERS)] = None
    """Default: all that may be read."""


@router.post("/v1/doc_search", response_model=SearchResponse)
async def doc_search(
    body: DocSearchBody, shared: Shared, caller: Caller, request_id: RequestId, links: SignedLinks
) -> Response:
    """Find documents of some formats, in all containers unless some are named."""
    wanted = body.containers
    if wanted is None:
        async with shared.stack.db.reading() as conn:
            wanted = [c.id for c in await access.all_searchable(conn, caller)]
    if not wanted:
        raise NotFound("there is no container that may be read; create one first")
    request = SearchRequest(
        containers=wanted[:MAX_CONTAINERS],
        query=body.query,
        top_k=body.limit,
        filters={"source_type": {"in": [f.value for f in body.formats or DOCUMENTS]}},
    )
    answer = await search.find(request, shared, caller, request_id, links)
    if body.containers is None:
        answer = search.of_all(answer, len(wanted))
    return json_answer(answer, request_id)
