"""``GET /mcp/tools``: the tools for agents that speak plain HTTP, by the names of the contract."""

from __future__ import annotations

from fastapi import APIRouter, Response

from latent_core.domain.errors import NotFound
from latent_core.wire.tools import ToolList, ToolView
from latent_gateway.context import Caller, RequestId, Shared
from latent_gateway.envelope import json_answer
from latent_gateway.mcp.allowed_tools import may
from latent_gateway.mcp.schema import schema_of
from latent_gateway.mcp.tools.registry import tools_of

router = APIRouter(tags=["mcp"])


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
