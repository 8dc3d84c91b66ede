"""``POST /v1/containers/search``, its alias ``POST /v1/search``, and ``POST /v1/doc_search`` (documents, no code)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from fastapi import APIRouter, Response

from latent_core.db.connection import deadline
from latent_core.domain.errors import Issue, IssueCode, NotFound, ServiceUnreachable
from latent_core.search.readable import Readable
from latent_core.search.service import SearchService
from latent_core.wire.containers import ContainerState
from latent_core.wire.documents import DocSearchBody
from latent_core.wire.search import SearchRequest, SearchResponse
from latent_gateway.api.like import source_of
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
    body: SearchRequest,
    shared: Gateway,
    caller: Principal,
    request_id: str,
    links: BlobLinks,
    *,
    logged: bool = True,
    corrects: bool = True,
) -> SearchResponse:
    """The answer to ``body`` for a principal; ``NotFound`` names a container that it may not read. ``logged``: it is
    what somebody searches for, and not a part of another task. ``corrects``: whether misspelt words are replaced."""
    async with shared.limiter.check():
        readable = await _readable(body, shared, caller)
    searched = _searched(readable, shared.settings.search_max_containers)
    image = (
        await query_image(shared, caller, body, searched) if body.image_ref is not None else None
    )
    like = await source_of(shared, caller, body.like) if body.like is not None else None
    answer = await SearchService(
        shared.stack.search_stores(shared.queries),
        links,
        shared.settings.search_seconds,
        shared.stack.metrics,
        shared.limiter,
    ).search(body, searched, image, like=like, corrects=corrects)
    if logged:
        shared.query_log.add(caller.name, body, searched, answer)
    logger.info(
        "search_completed",
        extra={
            "request_id": request_id,
            "containers": list(searched),
            "hits": len(answer.hits),
            "latency_ms": round(sum(v for k, v in answer.timings.items() if k != "embed"), 2),
            "partial": answer.partial,
        },
    )
    return _with_issues(answer, _skipped(body, readable, len(searched)))


async def _readable(body: SearchRequest, shared: Gateway, caller: Principal) -> dict[str, Readable]:
    """``access.searchable``. A Postgres that is busy with other calls is waited for as long as for a slot; one that
    answers no call until the deadline is away."""
    db, settings, now = shared.stack.db, shared.settings, asyncio.get_running_loop().time
    until = now() + settings.search_wait_seconds
    while True:
        begun = now()
        try:
            with deadline(settings.search_seconds):
                async with db.reading() as conn:
                    return await access.searchable(conn, caller, body.containers)
        except ServiceUnreachable:
            if not db.answered_since(begun) or now() > until:
                raise


def _searched(readable: Mapping[str, Readable], limit: int) -> dict[str, Readable]:
    """The first ``limit``; ``NotFound`` if there is none."""
    if not readable:
        raise NotFound("there is no container that you may read: create one first")
    return dict(list(readable.items())[:limit])


def _skipped(body: SearchRequest, readable: Mapping[str, Readable], searched: int) -> list[Issue]:
    """One issue for each named container that is archived, and one for those beyond the limit."""
    named = dict.fromkeys(body.containers or ())
    issues = [access.closed(c, ContainerState.ARCHIVED).issue() for c in named if c not in readable]
    if len(readable) > searched:
        message = (
            f"Searched the first {searched} of {len(readable)} containers (the limit). "
            "List the ones you need."
        )
        issues.append(Issue(code=IssueCode.POLICY, message=message))
    return issues


def _with_issues(answer: SearchResponse, issues: list[Issue]) -> SearchResponse:
    """The answer, partial if something was skipped."""
    if not issues:
        return answer
    return answer.model_copy(update={"partial": True, "issues": [*answer.issues, *issues]})


@router.post("/v1/doc_search", response_model=SearchResponse)
async def doc_search(
    body: DocSearchBody, shared: Shared, caller: Caller, request_id: RequestId, links: SignedLinks
) -> Response:
    """Search documents, never source code, in all containers unless the request names some."""
    return json_answer(await find(body.request(), shared, caller, request_id, links), request_id)
