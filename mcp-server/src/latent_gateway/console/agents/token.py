"""The page of a token: its calls over time, what it wrote, superseded and deleted; restoring and revoking."""

from __future__ import annotations

from typing import Annotated, Final
from uuid import UUID

from fastapi import Form, Path, Query, Response

from latent_core.db import token_calls, token_changes
from latent_core.domain.token import ChangeKind, TokenChange, TokenState, TokenView
from latent_gateway.api import documents as documents_api
from latent_gateway.api.tokens import LAST, changes_of, revoke_token, visible_token
from latent_gateway.auth import access
from latent_gateway.auth.principal import Principal
from latent_gateway.console.agents.agents import Cursor, may_create
from latent_gateway.console.agents.charts import by_day, by_operation
from latent_gateway.console.agents.token_form import now
from latent_gateway.console.frame.console_session import SignedIn
from latent_gateway.console.frame.rights import ContainerRights, rights_of
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.frame.view import done, page
from latent_gateway.context import RequestId, Shared

router = pages()

CHANGES: Final = 50
SPANS: Final = (7, 30, 90)
TokenId = Annotated[int, Path(ge=1, le=LAST)]
Kind = Annotated[ChangeKind, Query()]


@router.get("/console/agents/tokens/{token_id}")
async def token_page(
    token_id: TokenId,
    shared: Shared,
    session: SignedIn,
    days: Annotated[int, Query(ge=1, le=token_calls.KEPT_DAYS)] = 30,
    kind: Kind = ChangeKind.WRITTEN,
    cursor: Cursor = "",
) -> Response:
    caller = session.principal
    async with shared.stack.db.reading() as conn:
        await visible_token(conn, caller, token_id)
    await shared.calls.flush()
    changes = await changes_of(shared, caller, token_id, kind, cursor=cursor or None, limit=CHANGES)
    async with shared.stack.db.reading() as conn:
        token = await visible_token(conn, caller, token_id)
        calls = await token_calls.of_token(conn, token_id, days=days)
        readable = await access.all_readable(conn, caller) if caller.scopes else []
        rights = {one.id: rights_of(caller, one) for one in readable}
        counts = await token_changes.counts(conn, token_id, list(rights))
    return page(
        "agents/token.html",
        session,
        token=token,
        chart=by_day(calls, now().date(), days),
        operations=by_operation(calls),
        days=days,
        spans=SPANS,
        kind=kind,
        kinds=list(ChangeKind),
        counts=counts,
        counted=token_changes.MAX_COUNTED,
        changes=changes.changes,
        following=changes.next_cursor,
        restorable={one.id for one in changes.changes if _restorable(one, caller, token, rights)},
        may_revoke=may_create(caller) and token.state is TokenState.LIVE,
    )


def _restorable(
    change: TokenChange,
    caller: Principal,
    token: TokenView,
    rights: dict[str, ContainerRights],
) -> bool:
    """Whether the button is shown; the route checks it again."""
    if change.restorable_until is None or change.doc_id is None:
        return False
    held = rights[change.container_id]
    return held.delete or (held.write and caller.name == token.principal)


@router.post("/console/agents/tokens/{token_id}/revoke")
async def revoke(
    token_id: TokenId, shared: Shared, session: SignedIn, request_id: RequestId
) -> Response:
    token = await revoke_token(token_id, shared, session.principal, request_id)
    notice = f"Token {token.id} of {token.principal} is revoked. Its next request is refused."
    return done(f"/console/agents/tokens/{token_id}", notice)


@router.post("/console/agents/tokens/{token_id}/restore")
async def restore(
    token_id: TokenId,
    shared: Shared,
    session: SignedIn,
    request_id: RequestId,
    container: Annotated[str, Form(max_length=64)],
    doc: Annotated[UUID, Form()],
) -> Response:
    """Restore a document that the token deleted."""
    await documents_api.restore_document(container, doc, shared, session.principal, request_id)
    path = f"/console/agents/tokens/{token_id}?kind={ChangeKind.DELETED}"
    return done(path, "The document is being restored. It is searchable when its job is done.")
