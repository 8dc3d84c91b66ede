"""``/v1/saved-searches``: requests that the caller keeps under names. Each principal sees its own."""

from __future__ import annotations

from typing import Annotated, Final

import orjson
from fastapi import APIRouter, Path, Response

from latent_core.db import saved_searches
from latent_core.domain.errors import Conflict, NotFound, TooLarge
from latent_core.domain.token import Scope
from latent_core.wire.base import Envelope
from latent_core.wire.saved_searches import (
    MAX_BYTES,
    SavedSearch,
    SavedSearchAnswer,
    SavedSearchList,
    SaveSearchBody,
)
from latent_core.wire.search import SearchRequest
from latent_gateway.auth import access
from latent_gateway.auth.principal import Principal
from latent_gateway.context import Caller, Gateway, RequestId, Shared
from latent_gateway.envelope import json_answer

router = APIRouter(tags=["search"])

LAST: Final = 2**63 - 1
PASSING: Final = {"cursor"}
"""Fields of a request that belong to one answer."""


@router.get("/v1/saved-searches", response_model=SavedSearchList)
async def list_saved(shared: Shared, caller: Caller, request_id: RequestId) -> Response:
    """The caller's saved searches, by name."""
    found = await saved_of(shared, caller)
    return json_answer(SavedSearchList(saved_searches=found), request_id)


@router.post("/v1/saved-searches", response_model=SavedSearchAnswer, status_code=201)
async def save(
    body: SaveSearchBody, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Save a search under a name, in place of the one that has it."""
    saved = await keep(shared, caller, body)
    return json_answer(SavedSearchAnswer(saved_search=saved), request_id, status=201)


@router.delete("/v1/saved-searches/{saved_id}", response_model=Envelope)
async def delete(
    saved_id: Annotated[int, Path(ge=1, le=LAST)],
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
) -> Response:
    """Delete a saved search."""
    await forget(shared, caller, saved_id)
    return json_answer(Envelope(), request_id)


async def saved_of(shared: Gateway, caller: Principal) -> list[SavedSearch]:
    """Those of the principal that its token may see."""
    access.require(caller, Scope.READ)
    async with shared.stack.db.reading() as conn:
        found = await saved_searches.all_(conn, caller.name)
    return [one for one in found if _is_within(caller, one.request)]


async def keep(shared: Gateway, caller: Principal, body: SaveSearchBody) -> SavedSearch:
    """``TooLarge`` for a request over ``MAX_BYTES``, ``NotFound`` for containers that the caller may not read,
    ``Conflict`` at the limit, or for the name of a search that its token does not see."""
    access.require(caller, Scope.READ)
    request = body.request.model_dump(mode="json", exclude_unset=True, exclude=PASSING)
    size = len(orjson.dumps(request))
    if size > MAX_BYTES:
        raise TooLarge(f"the request has {size} bytes; a saved one has at most {MAX_BYTES}")
    async with shared.stack.db.transaction() as conn:
        if body.request.containers is not None:
            await access.readable(conn, caller, body.request.containers)
        former = await saved_searches.named(conn, caller.name, body.name)
        if former is not None and not _is_within(caller, former.request):
            raise Conflict(f"another search of yours has the name '{body.name}': choose another")
        return await saved_searches.save(conn, caller.name, body.name, request)


async def forget(shared: Gateway, caller: Principal, saved_id: int) -> None:
    """``NotFound`` if the caller has no such search."""
    access.require(caller, Scope.READ)
    async with shared.stack.db.transaction() as conn:
        found = await saved_searches.get(conn, caller.name, saved_id)
        if found is None or not _is_within(caller, found.request):
            raise NotFound(
                f"you have no saved search {saved_id}: GET /v1/saved-searches lists yours"
            )
        await saved_searches.delete(conn, caller.name, saved_id)


def _is_within(caller: Principal, request: SearchRequest) -> bool:
    """A token of certain containers does not see what its principal searched elsewhere."""
    if caller.containers is None:
        return True
    return request.containers is not None and caller.containers.issuperset(request.containers)
