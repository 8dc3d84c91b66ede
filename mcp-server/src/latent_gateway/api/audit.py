"""``GET /v1/audit``: who changed what."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query, Response

from latent_core.db import audit
from latent_core.db.audit import AuditQuery
from latent_core.db.connection import Connection
from latent_core.domain import cursors
from latent_core.domain.text import Text
from latent_core.domain.token import Scope
from latent_core.wire.access import AuditLine, AuditPage
from latent_core.wire.base import Moment
from latent_gateway.auth import access
from latent_gateway.auth.principal import Principal
from latent_gateway.context import Caller, RequestId, Shared
from latent_gateway.envelope import json_answer

router = APIRouter(tags=["access"])

LAST: Final = 2**63 - 1


@router.get("/v1/audit", response_model=AuditPage)
async def read(
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    container_id: Annotated[Text | None, Query(max_length=64)] = None,
    principal: Annotated[Text | None, Query(max_length=128)] = None,
    action: Annotated[Text | None, Query(max_length=64)] = None,
    since: Annotated[Moment | None, Query()] = None,
    until: Annotated[Moment | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=cursors.MAX_PAGE)] = 100,
    cursor: Annotated[str | None, Query(max_length=128)] = None,
) -> Response:
    """Changes in the containers that the caller owns, newest first. ``action`` is a prefix, such as ``document.``; ``until``
    is exclusive.

    The owner of the installation also sees changes to tokens and to deleted containers.
    """
    access.require(caller, Scope.ADMIN)
    before = cursors.decode_int(cursor, LAST)
    query = AuditQuery(before, limit + 1, principal, action, since, until)
    async with shared.stack.db.reading() as conn:
        found = await _lines(conn, caller, container_id, query)
    more = cursors.encode(found[limit - 1].id) if len(found) > limit else None
    return json_answer(AuditPage(audit=found[:limit], next_cursor=more), request_id)


async def _lines(
    conn: Connection, caller: Principal, container_id: str | None, query: AuditQuery
) -> list[AuditLine]:
    if caller.is_owner:
        owned = [c.id for c in await access.all_owned(conn, caller)]
        return await audit.whole(conn, owned, container_id, query)
    if container_id is None:
        owned = [c.id for c in await access.all_owned(conn, caller)]
    else:
        owned = [(await access.owned(conn, caller, container_id)).id]
    return await audit.of_containers(conn, owned, query)
