"""Calls for tokens, the audit trail and the state of a container."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from datetime import datetime
from typing import Final

from latent_client.transport import ClientCalls, part
from latent_core.domain.token import ChangeKind, Scope, TokenCalls, TokenChange, TokenView
from latent_core.wire.access import (
    AuditLine,
    AuditPage,
    SignInLink,
    TokenAnswer,
    TokenCallsAnswer,
    TokenChangePage,
    TokenCreated,
    TokenPage,
)
from latent_core.wire.containers import ContainerState, ContainerStateAnswer
from latent_core.wire.installation import (
    InstallationRecords,
    RestoredRecords,
    RestoreRecordsBody,
)
from latent_core.wire.models import ModelList

INSTALLATION: Final = "/v1/admin/installation"


class AccessCalls(ClientCalls):
    """Only the owner of the installation manages tokens. Owners of a container read its trail and set its state."""

    async def create_token(
        self,
        principal: str,
        *,
        name: str = "default",
        scopes: Collection[Scope] = (Scope.READ,),
        containers: Collection[str] | None = None,
        expires_at: datetime | None = None,
    ) -> TokenCreated:
        """Raises ``Conflict`` if two valid tokens already have that name."""
        body = {
            "principal": principal,
            "name": name,
            "scopes": sorted(scope.value for scope in scopes),
            "containers": None if containers is None else sorted(containers),
            "expires_at": expires_at.isoformat() if expires_at else None,
        }
        given = {key: value for key, value in body.items() if value is not None}
        return await self._transport.ask(TokenCreated, "POST", "/v1/tokens", json=given)

    async def tokens(
        self,
        *,
        principal: str | None = None,
        all: bool = False,  # noqa: A002 - the route's name
    ) -> AsyncIterator[TokenView]:
        """Valid tokens, newest first. With ``all``, also expired and revoked ones."""
        everything = "true" if all else None
        async for page in self._pages(TokenPage, "/v1/tokens", principal=principal, all=everything):
            for token in page.tokens:
                yield token

    async def token(self, token_id: int) -> TokenView:
        """One token in any state. A token may ask for itself."""
        answer = await self._transport.ask(TokenAnswer, "GET", f"/v1/tokens/{token_id}")
        return answer.token

    async def token_calls(self, token_id: int, *, days: int = 30) -> list[TokenCalls]:
        """How often it called each tool and route, by day (UTC), in the last ``days`` days, at most 90."""
        path = f"/v1/tokens/{token_id}/calls"
        answer = await self._transport.ask(TokenCallsAnswer, "GET", path, query={"days": days})
        return answer.calls

    async def token_changes(
        self, token_id: int, kind: ChangeKind = ChangeKind.WRITTEN
    ) -> AsyncIterator[TokenChange]:
        """Documents that it wrote, superseded or deleted, newest first, as they are now."""
        path = f"/v1/tokens/{token_id}/changes"
        async for page in self._pages(TokenChangePage, path, kind=kind.value):
            for change in page.changes:
                yield change

    async def revoke_token(self, token_id: int) -> TokenView:
        """Revoke a token. It fails from the next request on."""
        answer = await self._transport.ask(TokenAnswer, "DELETE", f"/v1/tokens/{token_id}")
        return answer.token

    async def audit(
        self,
        *,
        container_id: str | None = None,
        principal: str | None = None,
        action: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> AsyncIterator[AuditLine]:
        """Changes, newest first. ``action`` is a prefix, such as ``document.``; ``until`` is exclusive."""
        async for page in self._pages(
            AuditPage,
            "/v1/audit",
            container_id=container_id,
            principal=principal,
            action=action,
            since=None if since is None else since.isoformat(),
            until=None if until is None else until.isoformat(),
        ):
            for line in page.audit:
                yield line

    async def sign_in_link(self) -> SignInLink:
        """A new one-time link that signs a browser on the gateway's machine in to the console as the owner."""
        return await self._transport.ask(SignInLink, "POST", "/v1/admin/sign-in-link")

    async def models(self) -> ModelList:
        """Models installed on the gateway's machine, with the containers that use them."""
        return await self._transport.ask(ModelList, "GET", "/v1/models")

    async def installation(self) -> InstallationRecords:
        """The state of every container, every token with the hash of its secret, and every saved search."""
        return await self._transport.ask(InstallationRecords, "GET", INSTALLATION)

    async def restore_installation(self, records: RestoreRecordsBody) -> RestoredRecords:
        """Add records of a backup, at most ``MAX_RECORDS`` of each kind and ``MAX_SAVED_RECORDS`` saved searches. What
        exists already stays as it is."""
        body = records.model_dump(mode="json")
        return await self._transport.ask(
            RestoredRecords, "POST", INSTALLATION, json=body, repeatable=True
        )

    async def set_state(self, container_id: str, state: ContainerState) -> ContainerStateAnswer:
        """Set ``active``, ``readonly`` (no changes) or ``archived`` (no searches, no changes)."""
        path = f"/v1/containers/{part(container_id)}/state"
        return await self._transport.ask(
            ContainerStateAnswer, "PUT", path, json={"state": state.value}
        )
