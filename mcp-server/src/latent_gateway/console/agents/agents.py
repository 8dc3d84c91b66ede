"""Agents: how to connect one, tokens by a click, and who used what when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import Depends, Query, Request, Response

from latent_core.db import token_calls, tokens
from latent_core.db.connection import Connection
from latent_core.db.containers import Container
from latent_core.domain import cursors
from latent_core.domain.errors import Conflict, Invalid
from latent_core.domain.text import Text
from latent_core.domain.token import OperationCalls, Scope, TokenView
from latent_gateway.api.tokens import LAST, create_token, visible_token
from latent_gateway.auth import access
from latent_gateway.auth.principal import Principal
from latent_gateway.console.agents.connecting import (
    CHOICES,
    OTHER,
    PLACEHOLDER,
    chosen_client,
    mcp_address,
    panels,
)
from latent_gateway.console.agents.token_form import (
    LIFETIMES,
    ROLES,
    SCOPES,
    TokenForm,
    given_form,
    new_form,
    now,
)
from latent_gateway.console.frame.console_session import ConsoleSession, SignedIn
from latent_gateway.console.frame.rights import rights_of
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.frame.view import page
from latent_gateway.context import Gateway, RequestId, Shared

router = pages()

TOKENS: Final = 50
DAYS: Final = 30
TOOLS_SHOWN: Final = 3
MAX_CONTAINERS: Final = 100
"""Of the form; the command line can name others."""

Client = Annotated[str, Query(max_length=32)]
ContainerName = Annotated[Text, Query(max_length=64)]
Cursor = Annotated[str, Query(max_length=128)]


@dataclass(frozen=True, slots=True)
class TokenRow:
    token: TokenView
    calls: int
    """In the last ``DAYS`` days, like all of them."""
    failures: int
    percent: float
    """Of the token with the most calls on this page."""
    tools: Sequence[OperationCalls]
    """The most frequent ones."""


def may_create(principal: Principal) -> bool:
    return principal.is_owner and Scope.ADMIN in principal.scopes


@router.get("/console/agents")
async def agents_page(
    request: Request,
    shared: Shared,
    session: SignedIn,
    client: Client = "",
    container: ContainerName = "",
    everything: Annotated[bool, Query(alias="all")] = False,
    cursor: Cursor = "",
) -> Response:
    """Connect, create, list."""
    shown = await _shown(request, shared, session, client, container, everything, cursor)
    return page("agents/agents.html", session, **shown)


@router.get("/console/containers/{container_id}/agents")
async def container_agents(
    container_id: str,
    request: Request,
    shared: Shared,
    session: SignedIn,
    client: Client = "",
    everything: Annotated[bool, Query(alias="all")] = False,
    cursor: Cursor = "",
) -> Response:
    """The same for one container: the tokens that reach it."""
    async with shared.stack.db.reading() as conn:
        container = await access.readable_one(conn, session.principal, container_id)
    shown = await _shown(
        request, shared, session, client, container.id, everything, cursor, within=container
    )
    rights = rights_of(session.principal, container)
    return page(
        "agents/container.html", session, container=container, rights=rights, tab="agents", **shown
    )


@router.post("/console/agents/tokens")
async def create(
    request: Request,
    shared: Shared,
    session: SignedIn,
    request_id: RequestId,
    form: Annotated[TokenForm, Depends(given_form)],
) -> Response:
    """Create a token, and show it this once: the answer is not stored by anything, and no address shows it again."""
    access.require_owner(session.principal)
    body = form.body(now())
    if body is not None:
        try:
            made = await create_token(body, shared, session.principal, request_id)
        except (Invalid, Conflict) as error:
            field = "principal" if isinstance(error, Invalid) else "name"
            form.errors[field] = error.message
        else:
            return page(
                "agents/created.html",
                session,
                token=made.token,
                secret=made.secret,
                address=mcp_address(request, shared),
                panels=panels(mcp_address(request, shared), made.secret, None),
                chosen=form.client,
                other=OTHER,
                placeholder=PLACEHOLDER,
            )
    shown = await _shown(request, shared, session, form.client, "", False, "", form=form)
    return page("agents/agents.html", session, status=422, **shown)


async def _shown(
    request: Request,
    shared: Gateway,
    session: ConsoleSession,
    client: str,
    container: str,
    everything: bool,
    cursor: str,
    *,
    within: Container | None = None,
    form: TokenForm | None = None,
) -> dict[str, Any]:
    caller, is_owner = session.principal, may_create(session.principal)
    await shared.calls.flush()
    async with shared.stack.db.reading() as conn:
        grantable = await _grantable(conn, caller) if is_owner else []
        rows, following = await _rows(conn, caller, within, everything=everything, cursor=cursor)
    named = [one for one in grantable if one == container] or grantable
    address, chosen = mcp_address(request, shared), chosen_client(client)
    return {
        "address": address,
        "panels": panels(address, PLACEHOLDER, named[0] if named else None),
        "chosen": chosen,
        "other": OTHER,
        "placeholder": PLACEHOLDER,
        "connected": named[0] if named else None,
        "containers": grantable[:MAX_CONTAINERS],
        "may_create": is_owner,
        "form": form or new_form(chosen, named),
        "clients": CHOICES,
        "scopes": [(scope, text) for scope, text in SCOPES if scope in caller.scopes],
        "lifetimes": LIFETIMES,
        "by_roles": ROLES,
        "rows": rows,
        "everything": everything,
        "following": following,
        "days": DAYS,
    }


async def _grantable(conn: Connection, caller: Principal) -> list[str]:
    """Containers that a new token may name."""
    return [container.id for container in await access.all_owned(conn, caller)]


async def _rows(
    conn: Connection,
    caller: Principal,
    within: Container | None,
    *,
    everything: bool,
    cursor: str,
) -> tuple[list[TokenRow], str | None]:
    """All tokens for the owner, else the one that was used to sign in."""
    if may_create(caller):
        reach = None if within is None else tokens.Reach.of(within)
        found = await tokens.page(
            conn,
            before=cursors.decode_int(cursor or None, LAST),
            limit=TOKENS + 1,
            principal=None,
            all_=everything,
            reach=reach,
        )
    else:
        own = caller.token_id
        found = [] if own is None else [await visible_token(conn, caller, own)]
    more = cursors.encode(found[TOKENS - 1].id) if len(found) > TOKENS else None
    shown = found[:TOKENS]
    totals = await token_calls.totals(conn, [token.id for token in shown], days=DAYS)
    counts = {number: sum(one.calls for one in calls) for number, calls in totals.items()}
    highest = max([1, *counts.values()])
    rows = [
        TokenRow(
            token,
            calls=counts[token.id],
            failures=sum(one.failures for one in totals[token.id]),
            percent=round(100 * counts[token.id] / highest, 1),
            tools=totals[token.id][:TOOLS_SHOWN],
        )
        for token in shown
    ]
    return rows, more
