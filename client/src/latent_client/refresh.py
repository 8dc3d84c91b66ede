"""Another embedding space for a container, or its vectors anew, and the way back."""

from __future__ import annotations

from latent_client.calls import Calls
from latent_core.domain.envelope import Envelope
from latent_core.domain.refresh import ModelView, RefreshPlan, RefreshRequest


class Refreshing(Envelope):
    """A refresh that was accepted, or the plan of a dry run."""

    job_id: int | None = None
    status: str
    space_id: int | None = None
    plan: RefreshPlan | None = None


class RolledBack(Envelope):
    """What one step back did."""

    given_up: ModelView | None = None
    was: ModelView | None = None
    now: ModelView


class RefreshCalls(Calls):
    """Routes of the owner of a container."""

    async def refresh(
        self, container_id: str, request: RefreshRequest, *, dry_run: bool = False
    ) -> Refreshing:
        """Begin a refresh; ``Conflict`` when one is under way. ``dry_run`` tells what it would cost."""
        body = request.model_dump(mode="json", exclude_none=True)
        return await self._transport.ask(
            Refreshing,
            "POST",
            "/v1/admin/refresh",
            json={"container_id": container_id, "dry_run": dry_run, **body},
        )

    async def rollback(self, container_id: str) -> RolledBack:
        """Back to the space before, at once; ``Conflict`` when there is none."""
        return await self._transport.ask(
            RolledBack, "POST", "/v1/admin/rollback", json={"container_id": container_id}
        )
