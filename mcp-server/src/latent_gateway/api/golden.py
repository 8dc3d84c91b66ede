"""``/v1/containers/{id}/golden``: the golden queries of a container, which its owners change."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Header, Path, Query, Response

from latent_core.db import audit, golden
from latent_core.db.connection import Connection
from latent_core.db.golden import StoredQuery
from latent_core.domain import cursors
from latent_core.domain.errors import Conflict, Invalid, NotFound, PreconditionFailed
from latent_core.domain.golden import (
    MAX_EXPECTED,
    MAX_ID_CHARS,
    MAX_QUERIES,
    GoldenQuery,
    GoldenSet,
)
from latent_core.wire.golden import (
    GoldenList,
    GoldenQueryAnswer,
    GoldenQueryView,
    GoldenSetAnswer,
    NewGoldenQuery,
)
from latent_gateway.auth import access
from latent_gateway.auth.principal import Principal
from latent_gateway.context import Caller, Gateway, RequestId, Shared
from latent_gateway.envelope import PreconditionRequired, json_answer
from latent_gateway.middleware.conditional import version_of

router = APIRouter(tags=["evaluation"])

SHOWN: Final = 100
IfMatch = Annotated[str | None, Header(max_length=256)]
QueryId = Annotated[str, Path(min_length=1, max_length=MAX_ID_CHARS)]


@router.get("/v1/containers/{container_id}/golden", response_model=GoldenList)
async def show(
    container_id: str,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    limit: Annotated[int, Query(ge=1, le=cursors.MAX_PAGE)] = SHOWN,
    cursor: Annotated[str | None, Query(max_length=128)] = None,
) -> Response:
    """The golden queries of a container, in their order, with the thresholds of their means."""
    after = cursors.decode_int(cursor, 0)
    answer = await listed(shared, caller, container_id, after=after, limit=limit)
    return json_answer(answer, request_id, headers={"ETag": f'"{answer.etag}"'})


async def listed(
    shared: Gateway, caller: Principal, container_id: str, *, after: int, limit: int
) -> GoldenList:
    """The page behind the position ``after``, for all who may read the container."""
    async with shared.stack.db.reading() as conn:
        container = await access.readable_one(conn, caller, container_id)
        state = await golden.state(conn, container.id)
        found = await golden.page(conn, container.id, after=after, limit=limit + 1)
    more = cursors.encode(found[limit - 1].position) if len(found) > limit else None
    return GoldenList(
        container_id=container.id,
        etag=str(state.version),
        thresholds=state.thresholds,
        total=state.queries,
        queries=[view(one) for one in found[:limit]],
        next_cursor=more,
    )


@router.put("/v1/containers/{container_id}/golden", response_model=GoldenSetAnswer)
async def replace(
    container_id: str,
    body: GoldenSet,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    if_match: IfMatch = None,
) -> Response:
    """Replace all golden queries and thresholds if their version is still the one in ``If-Match`` (``0``: there were
    none)."""
    answer = await replaced(shared, caller, container_id, body, if_match, request_id)
    return json_answer(answer, request_id, headers={"ETag": f'"{answer.etag}"'})


@router.delete("/v1/containers/{container_id}/golden", response_model=GoldenSetAnswer)
async def clear(
    container_id: str,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    if_match: IfMatch = None,
) -> Response:
    """Remove all golden queries and thresholds if their version is still the one in ``If-Match``."""
    answer = await replaced(shared, caller, container_id, None, if_match, request_id)
    return json_answer(answer, request_id, headers={"ETag": f'"{answer.etag}"'})


async def replaced(
    shared: Gateway,
    caller: Principal,
    container_id: str,
    body: GoldenSet | None,
    if_match: str | None,
    request_id: str,
) -> GoldenSetAnswer:
    """The set after the change; ``PreconditionFailed`` if it has another version."""
    expected = _expected(if_match)
    async with shared.stack.db.transaction() as conn:
        version = await _begun(conn, caller, container_id, request_id, "replace")
        _check_version(container_id, version - 1, expected)
        await golden.replace(conn, container_id, body, version)
    total = len(body.queries) if body is not None else 0
    return GoldenSetAnswer(etag=str(version), total=total)


@router.post(
    "/v1/containers/{container_id}/golden", response_model=GoldenQueryAnswer, status_code=201
)
async def add(
    container_id: str, body: NewGoldenQuery, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Add a golden query. With ``merge``, add what it expects to the query of the same text, if there is one."""
    answer = await added(shared, caller, container_id, body, request_id)
    return json_answer(answer, request_id, status=201 if answer.created else 200)


async def added(
    shared: Gateway,
    caller: Principal,
    container_id: str,
    body: NewGoldenQuery,
    request_id: str,
) -> GoldenQueryAnswer:
    """The new or changed query; ``Conflict`` if its id exists, ``Invalid`` beyond a limit."""
    query = GoldenQuery.model_validate(body.model_dump(exclude={"merge"}))
    async with shared.stack.db.transaction() as conn:
        version = await _begun(conn, caller, container_id, request_id, "add")
        same = await golden.same(conn, container_id, query.query) if body.merge else None
        if same is not None:
            stored = StoredQuery(_merged(same.query, query), same.position, version)
            await golden.change(conn, container_id, stored.query, version)
        else:
            await _check_new(conn, container_id, query)
            stored = await golden.add(conn, container_id, query, version)
    return GoldenQueryAnswer(query=view(stored), etag=str(version), created=same is None)


@router.put(
    "/v1/containers/{container_id}/golden/{query_id:path}", response_model=GoldenQueryAnswer
)
async def change(
    container_id: str,
    query_id: QueryId,
    body: GoldenQuery,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    if_match: IfMatch = None,
) -> Response:
    """Change a golden query if its version is still the one in ``If-Match``."""
    answer = await changed(shared, caller, container_id, query_id, body, if_match, request_id)
    return json_answer(answer, request_id, headers={"ETag": f'"{answer.query.etag}"'})


async def changed(
    shared: Gateway,
    caller: Principal,
    container_id: str,
    query_id: str,
    body: GoldenQuery,
    if_match: str | None,
    request_id: str,
) -> GoldenQueryAnswer:
    """The query after the change; ``PreconditionFailed`` if it has another version."""
    if body.id not in ("", query_id):
        raise Invalid(f"the id in the body is '{body.id}', but the address names '{query_id}'")
    expected = _expected(if_match)
    query = body.model_copy(update={"id": query_id})
    async with shared.stack.db.transaction() as conn:
        version = await _begun(conn, caller, container_id, request_id, f"change {query_id}")
        stored = await golden.one(conn, container_id, query_id)
        if stored is None:
            raise unknown(container_id, query_id)
        _check_version(container_id, stored.version, expected, query_id)
        await golden.change(conn, container_id, query, version)
    return GoldenQueryAnswer(
        query=view(StoredQuery(query, stored.position, version)), etag=str(version)
    )


@router.delete(
    "/v1/containers/{container_id}/golden/{query_id:path}", response_model=GoldenSetAnswer
)
async def remove(
    container_id: str,
    query_id: QueryId,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    if_match: IfMatch = None,
) -> Response:
    """Remove a golden query; with ``If-Match`` only if its version is still that one."""
    answer = await removed(shared, caller, container_id, query_id, if_match, request_id)
    return json_answer(answer, request_id, headers={"ETag": f'"{answer.etag}"'})


async def removed(
    shared: Gateway,
    caller: Principal,
    container_id: str,
    query_id: str,
    if_match: str | None,
    request_id: str,
) -> GoldenSetAnswer:
    """The set after the removal; ``NotFound`` without such a query."""
    async with shared.stack.db.transaction() as conn:
        version = await _begun(conn, caller, container_id, request_id, f"remove {query_id}")
        stored = await golden.one(conn, container_id, query_id)
        if stored is None:
            raise unknown(container_id, query_id)
        if if_match is not None:
            _check_version(container_id, stored.version, _expected(if_match), query_id)
        await golden.remove(conn, container_id, query_id)
        state = await golden.state(conn, container_id)
    return GoldenSetAnswer(etag=str(version), total=state.queries)


async def query_of(
    shared: Gateway, caller: Principal, container_id: str, query_id: str
) -> GoldenQueryView:
    """One query, for all who may read the container; ``NotFound`` without it."""
    async with shared.stack.db.reading() as conn:
        container = await access.readable_one(conn, caller, container_id)
        stored = await golden.one(conn, container.id, query_id)
    if stored is None:
        raise unknown(container_id, query_id)
    return view(stored)


def unknown(container_id: str, query_id: str) -> NotFound:
    return NotFound(
        f"container '{container_id}' has no golden query '{query_id}'; its list names them",
        query_id=query_id,
    )


def view(stored: StoredQuery) -> GoldenQueryView:
    return GoldenQueryView(**stored.query.model_dump(), etag=str(stored.version))


async def _begun(
    conn: Connection, caller: Principal, container_id: str, request_id: str, what: str
) -> int:
    """Check the right, lock the set and note the change; returns its version."""
    container = await access.measurable(conn, caller, container_id)
    version = await golden.begin(conn, container.id, caller.name)
    await audit.note(
        conn,
        principal=caller.name,
        action="container.golden",
        container_id=container.id,
        object_=what,
        request_id=request_id,
    )
    return version


def _expected(if_match: str | None) -> str:
    if if_match is None:
        raise PreconditionRequired(
            "If-Match is missing: send the etag of the version that you change (from the list of golden queries)"
        )
    return version_of(if_match)


def _check_version(
    container_id: str, version: int, expected: str, query_id: str | None = None
) -> None:
    if str(version) != expected:
        changed = f"golden query '{query_id}'" if query_id else "the golden queries"
        raise PreconditionFailed(
            f"{changed} of container '{container_id}' changed in the meantime: read them again, then repeat the change",
            etag=str(version),
        )


async def _check_new(conn: Connection, container_id: str, query: GoldenQuery) -> None:
    state = await golden.state(conn, container_id)
    if state.queries >= MAX_QUERIES:
        raise Invalid(
            f"container '{container_id}' has {MAX_QUERIES} golden queries (the limit): remove some first"
        )
    if query.id and await golden.one(conn, container_id, query.id) is not None:
        raise Conflict(
            f"container '{container_id}' has a golden query '{query.id}' already: change it, or choose another id",
            query_id=query.id,
        )


def _merged(known: GoldenQuery, new: GoldenQuery) -> GoldenQuery:
    """``known`` with what ``new`` expects besides."""
    merged = {
        name: list(dict.fromkeys([*getattr(known, name), *getattr(new, name)]))
        for name in ("expect_docs", "expect_keywords", "expect")
    }
    beyond = [name for name, values in merged.items() if len(values) > MAX_EXPECTED]
    if beyond:
        raise Invalid(
            f"golden query '{known.id}' would expect more than {MAX_EXPECTED} entries in {beyond[0]} (the limit)"
        )
    score = known.min_score if new.min_score is None else new.min_score
    return known.model_copy(update={**merged, "min_score": score})
