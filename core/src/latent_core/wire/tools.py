"""The tools of ``/mcp``, for agents that use plain HTTP."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from latent_core.domain.envelope import Envelope


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
