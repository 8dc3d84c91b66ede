"""Tokens: create, list, revoke, and what each one does. Only the owner may do this, because tokens carry rights; a
token may look at itself."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Response

from latent_core.db import audit, token_calls, token_changes, tokens
from latent_core.db.connection import Connection
from latent_core.db.tokens import NewToken
from latent_core.domain import cursors
from latent_core.domain.errors import Invalid, NotFound
from latent_core.domain.text import Text
from latent_core.domain.token import (
    ChangeKind,
    Scope,
    TokenView,
    check_principal,
    digest,
    new_token,
)
from latent_core.wire.access import (
    TokenAnswer,
    TokenBody,
    TokenCallsAnswer,
    TokenChangePage,
    TokenCreated,
    TokenPage,
)
from latent_gateway.auth import access
from latent_gateway.auth.principal import Principal
from latent_gateway.context import Caller, Gateway, RequestId, Shared
from latent_gateway.envelope import json_answer

router = APIRouter(tags=["access"])

LAST: Final = 2**63 - 1
TokenId = Annotated[int, Path(ge=1, le=LAST)]
UNCACHED: Final = {"Cache-Control": "no-store"}
"""Only this answer contains a token: no cache may store it."""


@router.post("/v1/tokens", response_model=TokenCreated, status_code=201)
async def create(
    body: TokenBody, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Create a token. Only this answer contains it."""
    answer = await create_token(body, shared, caller, request_id)
    return json_answer(answer, request_id, status=201, headers=UNCACHED)


async def create_token(
    body: TokenBody, shared: Gateway, caller: Principal, request_id: str
) -> TokenCreated:
    """The token, once it is committed."""
    access.require_owner(caller)
    secret = new_token()
    async with shared.stack.db.transaction() as conn:
        await access.check_grant(conn, caller, body.scopes, body.containers or [])
        token = await tokens.create(conn, _new(body), digest(secret), created_by=caller.name)
        await _note(conn, caller, "token.create", token, request_id)
    return TokenCreated(token=token, secret=secret)


def _new(body: TokenBody) -> NewToken:
    if body.expires_at is not None and body.expires_at <= datetime.now(UTC):
        raise Invalid(f"expires_at: {body.expires_at.isoformat()} has passed")
    return NewToken(
        principal=check_principal(body.principal),
        name=body.name,
        scopes=frozenset(body.scopes),
        containers=None if body.containers is None else tuple(dict.fromkeys(body.containers)),
        expires_at=body.expires_at,
    )


@router.get("/v1/tokens", response_model=TokenPage)
async def list_tokens(
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    principal: Annotated[Text | None, Query(max_length=128)] = None,
    all: bool = False,  # noqa: A002 - the name is part of the query
    limit: Annotated[int, Query(ge=1, le=cursors.MAX_PAGE)] = 100,
    cursor: Annotated[str | None, Query(max_length=128)] = None,
) -> Response:
    """Valid tokens, newest first; with ``all`` also expired and revoked ones. The secret is never shown."""
    access.require_owner(caller)
    async with shared.stack.db.reading() as conn:
        found = await tokens.page(
            conn,
            before=cursors.decode_int(cursor, LAST),
            limit=limit + 1,
            principal=principal,
            all_=all,
        )
    more = cursors.encode(found[limit - 1].id) if len(found) > limit else None
    return json_answer(TokenPage(tokens=found[:limit], next_cursor=more), request_id)


@router.get("/v1/tokens/{token_id}", response_model=TokenAnswer)
async def show(
    token_id: TokenId, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """One token in any state. The owner may see each; a token may see itself."""
    async with shared.stack.db.reading() as conn:
        token = await visible_token(conn, caller, token_id)
    return json_answer(TokenAnswer(token=token), request_id)


@router.get("/v1/tokens/{token_id}/calls", response_model=TokenCallsAnswer)
async def calls(
    token_id: TokenId,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    days: Annotated[int, Query(ge=1, le=token_calls.KEPT_DAYS)] = 30,
) -> Response:
    """How often the token called each tool and route, by day (UTC), in the last 90 days at most. Counts of other gateways
    appear some seconds later."""
    async with shared.stack.db.reading() as conn:
        await visible_token(conn, caller, token_id)
    await shared.calls.flush()
    async with shared.stack.db.reading() as conn:
        found = await token_calls.of_token(conn, token_id, days=days)
    return json_answer(TokenCallsAnswer(calls=found), request_id)


@router.get("/v1/tokens/{token_id}/changes", response_model=TokenChangePage)
async def changes(
    token_id: TokenId,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    kind: ChangeKind = ChangeKind.WRITTEN,
    limit: Annotated[int, Query(ge=1, le=cursors.MAX_PAGE)] = 100,
    cursor: Annotated[str | None, Query(max_length=128)] = None,
) -> Response:
    """Documents that the token wrote, superseded or deleted, newest first, as they are now. Only of containers that the
    caller may read."""
    page = await changes_of(shared, caller, token_id, kind, cursor=cursor, limit=limit)
    return json_answer(page, request_id)


async def changes_of(
    shared: Gateway,
    caller: Principal,
    token_id: int,
    kind: ChangeKind,
    *,
    cursor: str | None,
    limit: int,
) -> TokenChangePage:
    """A page of the changes of one kind."""
    async with shared.stack.db.reading() as conn:
        token = await visible_token(conn, caller, token_id)
        found = await token_changes.listed(
            conn,
            token.id,
            kind,
            container_ids=await seen_containers(conn, caller),
            before=cursors.decode_int(cursor, LAST),
            limit=limit + 1,
        )
    more = cursors.encode(found[limit - 1].id) if len(found) > limit else None
    return TokenChangePage(changes=found[:limit], next_cursor=more)


async def seen_containers(conn: Connection, caller: Principal) -> list[str]:
    """The containers whose changes the caller may see."""
    if Scope.READ not in caller.scopes:
        return []
    return [container.id for container in await access.all_readable(conn, caller)]


async def visible_token(conn: Connection, caller: Principal, token_id: int) -> TokenView:
    """The token, if the caller is the owner or shows this very token; else ``Forbidden`` or ``NotFound``."""
    if caller.token_id != token_id:
        access.require_owner(caller, "look at tokens")
    token = await tokens.get(conn, token_id)
    if token is None:
        raise _unknown(token_id)
    return token


@router.delete("/v1/tokens/{token_id}", response_model=TokenAnswer)
async def revoke(
    token_id: TokenId, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Revoke a token. It fails from the next request on."""
    token = await revoke_token(token_id, shared, caller, request_id)
    return json_answer(TokenAnswer(token=token), request_id)


async def revoke_token(
    token_id: int, shared: Gateway, caller: Principal, request_id: str
) -> TokenView:
    """The token, which is no longer valid once this is committed."""
    access.require_owner(caller)
    async with shared.stack.db.transaction() as conn:
        revoked = await tokens.revoke(conn, token_id)
        token = await tokens.get(conn, token_id)
        if token is None:
            raise _unknown(token_id)
        if revoked:
            await _note(conn, caller, "token.revoke", token, request_id)
    return token


def _unknown(token_id: int) -> NotFound:
    return NotFound(f"token {token_id} does not exist: GET /v1/tokens lists all tokens")


async def _note(
    conn: Connection, caller: Principal, action: str, token: TokenView, request_id: str
) -> None:
    await audit.note(
        conn,
        principal=caller.name,
        token_id=caller.token_id,
        action=action,
        container_id=None,
        object_=f"{token.id} {token.principal} {token.name}",
        request_id=request_id,
    )
