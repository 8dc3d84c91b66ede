"""Records of the installation, for a backup of all containers: states, tokens, saved searches and the audit trail."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Response

from latent_core.db import audit, installation_records as records
from latent_core.domain.token import check_principal
from latent_core.wire.installation import (
    ContainerStanding,
    InstallationRecords,
    RestoredRecords,
    RestoreRecordsBody,
    SavedSearchRecord,
    TokenRecord,
)
from latent_gateway.auth import access
from latent_gateway.context import Caller, RequestId, Shared
from latent_gateway.envelope import json_answer

router = APIRouter(tags=["backups"])

MAY: Final = "back up and restore the whole installation"


@router.get("/v1/admin/installation", response_model=InstallationRecords)
async def show(shared: Shared, caller: Caller, request_id: RequestId) -> Response:
    """The state of every container, every token with the hash of its secret, and the saved searches of every principal.
    Only for the installation's owner."""
    access.require_owner(caller, MAY)
    async with shared.stack.db.transaction() as conn:
        answer = InstallationRecords(
            at=await records.now(conn),
            containers=[ContainerStanding(**row) for row in await records.containers(conn)],
            tokens=[TokenRecord(**row) for row in await records.tokens(conn)],
            saved_searches=[SavedSearchRecord(**row) for row in await records.saved_searches(conn)],
        )
        await audit.note(
            conn,
            principal=caller.name,
            token_id=caller.token_id,
            action="installation.backup",
            container_id=None,
            object_=f"{len(answer.containers)} containers, {len(answer.tokens)} tokens, "
            f"{len(answer.saved_searches)} saved searches",
            request_id=request_id,
        )
    return json_answer(answer, request_id, headers={"Cache-Control": "no-store"})


@router.post("/v1/admin/installation", response_model=RestoredRecords)
async def restore(
    body: RestoreRecordsBody, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Add records of a backup. Tokens, saved searches and lines that exist stay as they are; a container gets the state
    and the time of creation of its record, which decides which tokens reach it."""
    access.require_owner(caller, MAY)
    for token in body.tokens:
        check_principal(token.principal)
        for scope in token.scopes:  # a token grants no scope that its creator lacks
            access.require(caller, scope)
    for search in body.saved_searches:
        check_principal(search.principal)
    values = body.model_dump(mode="json")
    async with shared.stack.db.transaction() as conn:
        answer = RestoredRecords(
            audit=await records.add_audit(conn, values["audit"]),
            containers=await records.set_containers(conn, values["containers"]),
            tokens=await records.add_tokens(conn, values["tokens"]),
            saved_searches=await records.add_saved_searches(conn, values["saved_searches"]),
        )
        await audit.note(
            conn,
            principal=caller.name,
            token_id=caller.token_id,
            action="installation.restore",
            container_id=None,
            object_=f"{answer.containers} containers, {answer.tokens} tokens, {answer.saved_searches} saved searches, "
            f"{answer.audit} lines",
            request_id=request_id,
        )
    return json_answer(answer, request_id)
