"""Refresh: another embedding space or new vectors, and one step back."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict

from latent_core.domain.envelope import Envelope
from latent_core.domain.refresh import ModelView, RefreshPlan, RefreshRequest
from latent_core.wire.base import RequestBody
from latent_core.wire.fields import ContainerId


class RefreshBody(RefreshRequest):
    model_config = ConfigDict(extra="forbid", frozen=True)

    container_id: ContainerId
    dry_run: bool = False

    def request(self) -> RefreshRequest:
        return RefreshRequest.model_validate(
            self.model_dump(exclude={"container_id", "dry_run"}, exclude_none=True)
        )


class RefreshAnswer(Envelope):
    job_id: int
    status: Literal["queued"] = "queued"
    space_id: int
    """The embedding space that the job builds or rewrites."""


class PlanAnswer(Envelope):
    """Of a dry run."""

    status: Literal["planned"] = "planned"
    plan: RefreshPlan


class RollbackBody(RequestBody):
    container_id: ContainerId


class RollbackAnswer(Envelope):
    """The result of a rollback."""

    aborted: ModelView | None
    """A build that never became live."""
    was: ModelView | None
    now: ModelView
