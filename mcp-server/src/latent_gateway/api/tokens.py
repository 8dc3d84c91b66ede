"""Tokens: create, list, revoke. Only the owner may do this, because tokens carry rights."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Response

from latent_core.db import audit, tokens
from latent_core.db.connection import Connection
from latent_core.db.tokens import NewToken
from latent_core.domain import cursors
from latent_core.domain.errors import Invalid, NotFound
from latent_core.domain.text import Text
from latent_core.domain.token import TokenView, check_principal, digest, new_token
from latent_core.wire.access import TokenAnswer, TokenBody, TokenCreated, TokenPage
from latent_gateway.auth import access
from latent_gateway.auth.principal import Principal
from latent_gateway.context import Caller, RequestId, Shared
from latent_gateway.envelope import json_answer

router = APIRouter(tags=["access"])

LAST: Final = 2**63 - 1
UNCACHED: Final = {"Cache-Control": "no-store"}
"""Only this answer contains a token: no cache may store it."""


@router.post("/v1/tokens", response_model=TokenCreated, status_code=201)
async def create(
    body: TokenBody, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Create a token. Only this answer contains it."""
    access.require_owner(caller)
    secret = new_token()
    async with shared.stack.db.transaction() as conn:
        await access.check_grant(conn, caller, body.scopes, body.containers or [])
        token = await tokens.create(conn, _new(body), digest(secret), created_by=caller.name)
        await _note(conn, caller, "token.create", token, request_id)
    answer = TokenCreated(token=token, secret=secret)
    return json_answer(answer, request_id, status=201, headers=UNCACHED)


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


@router.delete("/v1/tokens/{token_id}", response_model=TokenAnswer)
async def revoke(
    token_id: Annotated[int, Path(ge=1, le=LAST)],
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
) -> Response:
    """Revoke a token. It fails from the next request on."""
    access.require_owner(caller)
    async with shared.stack.db.transaction() as conn:
        revoked = await tokens.revoke(conn, token_id)
        token = await tokens.get(conn, token_id)
        if token is None:
            raise NotFound(f"token {token_id} does not exist: GET /v1/tokens lists all tokens")
        if revoked:
            await _note(conn, caller, "token.revoke", token, request_id)
    return json_answer(TokenAnswer(token=token), request_id)


async def _note(
    conn: Connection, caller: Principal, action: str, token: TokenView, request_id: str
) -> None:
    await audit.note(
        conn,
        principal=caller.name,
        action=action,
        container_id=None,
        object_=f"{token.id} {token.principal} {token.name}",
        request_id=request_id,
    )
