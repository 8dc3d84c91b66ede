"""Base classes of requests and of paged answers."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from latent_core.domain.envelope import Envelope


class RequestBody(BaseModel):
    model_config = ConfigDict(extra="forbid")


class PagedEnvelope(Envelope):
    """One page of a list."""

    next_cursor: str | None
    """None on the last page."""
