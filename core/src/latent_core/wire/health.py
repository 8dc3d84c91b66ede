"""Health and readiness."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel


class HealthAnswer(BaseModel):
    status: Literal["ok"] = "ok"


class ReadinessAnswer(BaseModel):
    status: Literal["ok", "degraded"]
    services: dict[str, Literal["ok", "down"]]
