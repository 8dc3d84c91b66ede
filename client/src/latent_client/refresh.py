"""Another embedding space for a container, or its vectors anew, and the way back."""

from __future__ import annotations

from latent_client.calls import Calls
from latent_core.domain.refresh import RefreshRequest
from latent_core.wire.refresh import PlanAnswer, RefreshAnswer, RollbackAnswer


class RefreshCalls(Calls):
    """Routes of the owner of a container."""

    async def refresh(
        self, container_id: str, request: RefreshRequest, *, dry_run: bool = False
    ) -> RefreshAnswer | PlanAnswer:
        """Begin a refresh; ``Conflict`` when one is under way. ``dry_run`` tells what it would cost."""
        body = request.model_dump(mode="json", exclude_none=True)
        return await self._transport.ask(
            PlanAnswer if dry_run else RefreshAnswer,
            "POST",
            "/v1/admin/refresh",
            json={"container_id": container_id, "dry_run": dry_run, **body},
        )

    async def rollback(self, container_id: str) -> RollbackAnswer:
        """Back to the space before, at once; ``Conflict`` when there is none."""
        return await self._transport.ask(
            RollbackAnswer, "POST", "/v1/admin/rollback", json={"container_id": container_id}
        )
