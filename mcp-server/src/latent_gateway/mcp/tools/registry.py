"""The tools by the names of the contract, and ``GET /mcp/tools`` for agents that speak plain HTTP."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Response

from latent_core.domain.errors import NotFound
from latent_core.settings import Settings
from latent_core.wire.doctor import ToolList, ToolView
from latent_gateway.context import Caller, RequestId, Shared
from latent_gateway.envelope import json_answer
from latent_gateway.mcp.calls import may
from latent_gateway.mcp.tools import (
    add,
    ask,
    chatgpt,
    container_create,
    containers,
    doc_search,
    document_delete,
    document_list,
    documents,
    export,
    jobs,
    page_image,
    refresh,
    search,
)
from latent_gateway.mcp.tools.port import Tool
from latent_gateway.mcp.tools.schema import schema_of

TOOLS: Final = (
    containers.LIST,
    containers.DESCRIBE,
    search.SEARCH,
    doc_search.DOC_SEARCH,
    document_list.LIST,
    document_list.OUTLINE,
    documents.GET,
    page_image.PAGE_IMAGE,
    add.ADD,
    document_delete.DELETE,
    container_create.CREATE,
    jobs.GET,
    refresh.REFRESH,
    export.EXPORT,
)
CONTRACT_NAMES: Final = {"containers.add": add.ADD}
"""Names of the contract for tools that MCP lists under another name. Both can be called."""
PAIR: Final = (chatgpt.SEARCH, chatgpt.FETCH)
"""At ``/mcp/connector``; at ``/mcp`` by ``LLC_MCP_SEARCH_FETCH``."""


def tools_of(settings: Settings) -> tuple[Tool, ...]:
    """The tools that /mcp lists. Each costs every session of every model: ``containers_ask`` takes the place of
    ``doc_search``, which ``containers_search`` with ``source_type`` replaces."""
    pair = PAIR if settings.mcp_search_fetch else ()
    if not settings.mcp_ask:
        return (*TOOLS, *pair)
    return (*(tool for tool in TOOLS if tool is not doc_search.DOC_SEARCH), ask.ASK, *pair)


def unlisted(settings: Settings) -> dict[str, Tool]:
    """Tools that can be called under these names, too."""
    replaced = {doc_search.DOC_SEARCH.name: doc_search.DOC_SEARCH} if settings.mcp_ask else {}
    return CONTRACT_NAMES | replaced


router = APIRouter(tags=["mcp"])


@router.get("/mcp/tools", response_model=ToolList)
async def tools(shared: Shared, caller: Caller, request_id: RequestId) -> Response:
    """The tools that this token may call."""
    by_name = {tool.name: tool for tool in tools_of(shared.settings)}
    by_name |= unlisted(shared.settings)
    listed = [
        ToolView(
            name=name,
            mcp_name=tool.wire_name,
            title=tool.title,
            description=tool.description,
            input_schema=schema_of(tool.arguments),
        )
        for name, tool in by_name.items()
        if may(caller, tool)
    ]
    return json_answer(ToolList(tools=listed), request_id)


@router.api_route("/mcp/", methods=["GET", "POST", "DELETE"], include_in_schema=False)
@router.api_route("/mcp/connector/", methods=["GET", "POST", "DELETE"], include_in_schema=False)
async def with_a_slash() -> Response:
    """No redirect: behind a proxy it would lead to an address that only the proxy knows."""
    raise NotFound("the MCP addresses are /mcp and /mcp/connector, without a slash at the end")
