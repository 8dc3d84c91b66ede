"""The tools by the names of the contract, and which of them a principal may call."""

from __future__ import annotations

from typing import Final

from latent_core.settings import Settings
from latent_core.wire.doctor import ToolList, ToolView
from latent_gateway.auth.principal import Principal
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


def listed(settings: Settings, caller: Principal) -> ToolList:
    """The tools that a principal may call."""
    by_name = {tool.name: tool for tool in tools_of(settings)} | unlisted(settings)
    return ToolList(
        tools=[
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
    )
