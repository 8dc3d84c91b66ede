"""``doc_search``: ``containers_search`` over documents, never over source code."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from latent_core.domain.text import Text
from latent_core.wire.documents import DocSearchBody, DocumentTypes
from latent_core.wire.search import MAX_CONTAINERS, MAX_QUERY_CHARS, MAX_TOP_K, SearchRequest
from latent_gateway.api.search import find
from latent_gateway.mcp.calls import Scope, ToolCall
from latent_gateway.mcp.compact import ToolSearchResult
from latent_gateway.mcp.tools.arguments import CLAMPED
from latent_gateway.mcp.tools.port import Arguments, Cursor, Tool
from latent_gateway.mcp.tools.search import (
    DEFAULT_BUDGETS,
    DEFAULT_PASSAGES,
    DEFAULT_TOP_K,
    Listed,
    found,
)

ITEMS: Final = {"items": {"type": "string"}}
"""Their names are not listed: each would be paid for by every session."""


class DocSearchArguments(Arguments):
    query: Annotated[str, Field(min_length=1, max_length=MAX_QUERY_CHARS)]
    source_type: Annotated[
        DocumentTypes,
        Listed,
        Field(
            description="Default: all but code, text, image, conversation.",
            json_schema_extra=ITEMS,
        ),
    ] = []
    limit: Annotated[
        int, Field(ge=1, le=MAX_TOP_K, description="1 to 100, default 10."), CLAMPED
    ] = DEFAULT_TOP_K
    containers: Annotated[
        Annotated[list[Text], Field(min_length=1, max_length=MAX_CONTAINERS)] | None,
        Listed,
    ] = None
    cursor: Cursor = None

    def request(self) -> SearchRequest:
        body = DocSearchBody(
            query=self.query,
            source_type=self.source_type,
            limit=self.limit,
            containers=self.containers,
        )
        more = {"passages": DEFAULT_PASSAGES, "diagnostics": False, "cursor": self.cursor}
        return body.request().model_copy(update=more)


async def doc_search(call: ToolCall, arguments: DocSearchArguments) -> ToolSearchResult:
    request = arguments.request()
    answer = await find(request, call.shared, call.caller, call.request_id, call.links)
    return found(request, answer, "brief", DEFAULT_BUDGETS["brief"])


DOC_SEARCH: Final = Tool(
    name="doc_search",
    title="Search documents",
    description="containers_search without source code.",
    scope=Scope.READ,
    arguments=DocSearchArguments,
    answer=ToolSearchResult,
    run=doc_search,
)
