"""The tools there are, in the order they are listed."""

from __future__ import annotations

from typing import Final

from latent_core.settings import Settings
from latent_gateway.mcp.tools import (
    add,
    chatgpt,
    containers,
    documents,
    export,
    jobs,
    page_image,
    refresh,
    search,
)
from latent_gateway.mcp.tools.port import Tool

TOOLS: Final = (
    containers.LIST,
    containers.DESCRIBE,
    search.SEARCH,
    add.ADD,
    documents.GET,
    page_image.PAGE_IMAGE,
    jobs.GET,
    refresh.REFRESH,
    export.EXPORT,
)
PAIR: Final = (chatgpt.SEARCH, chatgpt.FETCH)


def tools_of(settings: Settings) -> tuple[Tool, ...]:
    """The tools of this gateway."""
    return (*TOOLS, *(PAIR if settings.mcp_search_fetch else ()))
