"""``GET /mcp/tools``: the tools for agents that speak plain HTTP, by the names of the contract."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from latent_core.domain.envelope import Envelope
from latent_core.domain.errors import NotFound
from latent_gateway.answers import json_answer
from latent_gateway.context import Caller, RequestId, Shared
from latent_gateway.mcp.may import may
from latent_gateway.mcp.schema import schema_of
from latent_gateway.mcp.tools.registry import tools_of

router = APIRouter(tags=["mcp"])


class ToolView(BaseModel):
    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)

    name: str
    """With dots; ``/mcp`` takes it as well."""
    mcp_name: str = Field(serialization_alias="mcpName")
    """As MCP clients are told: some of them take no dots."""
    title: str
    description: str
    input_schema: dict[str, Any] = Field(serialization_alias="inputSchema")


class ToolList(Envelope):
    tools: list[ToolView]


@router.get("/mcp/tools", response_model=ToolList)
async def tools(shared: Shared, caller: Caller, request_id: RequestId) -> Response:
    """Those that this token may call."""
    listed = [
        ToolView(
            name=tool.name,
            mcp_name=tool.wire_name,
            title=tool.title,
            description=tool.description,
            input_schema=schema_of(tool.arguments),
        )
        for tool in tools_of(shared.settings)
        if may(caller, tool)
    ]
    return json_answer(ToolList(tools=listed), request_id)


@router.api_route("/mcp/", methods=["GET", "POST", "DELETE"], include_in_schema=False)
async def with_a_slash() -> Response:
    """No redirect: behind a proxy it would lead to an address that only the proxy knows."""
    raise NotFound("MCP is spoken at /mcp, without a slash at the end")
