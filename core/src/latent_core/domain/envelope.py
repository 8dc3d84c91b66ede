"""Fields of every answer (CONTRACT "HTTP v1")."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from latent_core.domain.errors import Issue


class Envelope(BaseModel):
    """Base of every answer."""

    request_id: str = ""
    version: Literal["v1"] = "v1"
    partial: bool = False
    timings: dict[str, float] = {}
    """Stage to milliseconds."""
    issues: list[Issue] = []
