"""Doctor, health and the list of MCP tools."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from latent_core.domain.text import Text
from latent_core.wire.base import Envelope, RequestBody


class DoctorBody(RequestBody):
    container_id: Text | None = None
    repair: bool = False
    deep: bool = False
    """Read all bytes and compare their hashes."""


class DoctorAnswer(Envelope):
    report: dict[str, Any]
    """A ``DoctorReport``; an open object in the schema, so that findings can get new fields."""


class HealthAnswer(BaseModel):
    status: Literal["ok"] = "ok"


ServiceState = Literal["ok", "down", "full", "read_only"]
"""``full``: it refuses writes that need space. ``read_only``: it refuses all writes."""


class ReadinessAnswer(BaseModel):
    status: Literal["ok", "degraded"]
    services: dict[str, ServiceState]


class ToolView(BaseModel):
    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)

    name: str
    """With dots; ``/mcp`` takes it as well."""
    mcp_name: str = Field(alias="mcpName")
    """The name for MCP clients: some of them accept no dots."""
    title: str
    description: str
    input_schema: dict[str, Any] = Field(alias="inputSchema")


class ToolList(Envelope):
    tools: list[ToolView]
