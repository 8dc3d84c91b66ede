"""Resources: ``container://{id}``, ``document://{id}`` and ``page://{doc}/{n}``, for clients that read by uri."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from uuid import UUID

import orjson
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    Completion,
    ListResourcesResult,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)

from latent_core.db.documents import document_listing
from latent_core.db.documents.document_listing import DocumentFilter
from latent_core.domain import cursors
from latent_core.domain.document_order import DocumentOrder, ListPosition
from latent_core.domain.errors import Invalid, LatentError, NotFound
from latent_gateway.api.pages import page_of, readable_document
from latent_gateway.auth import access
from latent_gateway.mcp.calls import ToolCall
from latent_gateway.mcp.cleaning import cleaned
from latent_gateway.mcp.results import ToolResult, by_tools
from latent_gateway.mcp.tools.containers import described
from latent_gateway.mcp.tools.documents import MAX_PAGE, document
from latent_gateway.mcp.tools.port import UNTRUSTED, UntrustedContent

JSON: Final = "application/json"
READ_CHARS: Final = 40_000
"""Of one resource, which cannot be read in parts."""
A_PAGE: Final = 100
MAX_VALUES: Final = 100
MAX_CONTAINERS: Final = 50
"""Searched to complete a document id."""
UUID_PREFIX: Final = re.compile("[0-9a-f-]{0,36}")
URI: Final = re.compile(
    r"container://(?P<container>[a-z0-9-]{1,64})"
    r"|document://(?P<document>[0-9a-fA-F-]{36})"
    r"|page://(?P<doc>[0-9a-fA-F-]{36})/(?P<page>[0-9]{1,9})"
)

TEMPLATES: Final = (
    ResourceTemplate(
        uri_template="container://{id}",
        name="container",
        title="A container",
        description="The contents of a container and how to search it.",
        mime_type=JSON,
    ),
    ResourceTemplate(
        uri_template="document://{id}",
        name="document",
        title="A document",
        description="A document and the beginning of its text; documents_get reads the rest.",
        mime_type=JSON,
    ),
    ResourceTemplate(
        uri_template="page://{doc}/{n}",
        name="page",
        title="A page of a document",
        description="The text of a page and a link to its image; page_image shows it.",
        mime_type=JSON,
    ),
)


class PageWords(UntrustedContent):
    text: str


class ToolPage(ToolResult):
    """``page://``: without the image, because clients would pass it to the model as base64 text."""

    doc_id: str
    container_id: str
    page: int
    pages: int
    page_image: str
    page_uri: str | None = None
    notice: str
    untrusted_content: PageWords


async def list_(call: ToolCall, cursor: str | None) -> ListResourcesResult:
    """The containers, page by page. Documents are found by search, not listed."""
    after = "" if cursor is None else _decoded(cursor)
    async with call.shared.stack.db.reading() as conn:
        readable = await access.all_readable(conn, call.caller)
    left = sorted((c for c in readable if c.id > after), key=lambda c: c.id)
    shown = [
        Resource(
            uri=f"container://{c.id}",
            name=c.id,
            title=c.manifest.name,
            description=c.manifest.theme or None,
            mime_type=JSON,
        )
        for c in left[:A_PAGE]
    ]
    more = cursors.encode(left[A_PAGE - 1].id) if len(left) > A_PAGE else None
    return ListResourcesResult(resources=shown, next_cursor=more)


def _decoded(cursor: str) -> str:
    try:
        return cursors.decode(cursor)
    except Invalid as exc:
        raise MCPError(INVALID_PARAMS, exc.message) from exc


async def read(call: ToolCall, uri: str) -> ReadResourceResult:
    """Raises ``MCPError`` with the uri in its data if it does not exist or the caller may not read it."""
    try:
        answer = await _answer(call, uri)
    except LatentError as exc:
        raise MCPError(INVALID_PARAMS, by_tools(exc.message), {"uri": uri[:300]}) from exc
    text = orjson.dumps(cleaned(answer.compact())).decode()
    return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type=JSON, text=text)])


async def _answer(call: ToolCall, uri: str) -> ToolResult:
    parts = URI.fullmatch(uri)
    if parts is None:
        raise NotFound(
            "unknown resource: use container://{id}, document://{id} and page://{doc}/{n}"
        )
    if parts["container"]:
        return await described(call, parts["container"], "full", READ_CHARS)
    doc_id = _uuid(parts["document"] or parts["doc"])
    if parts["document"]:
        return await document(call, doc_id, max_chars=READ_CHARS)
    return await _page(call, doc_id, int(parts["page"]))


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as exc:
        raise NotFound("this is not a document id") from exc


async def _page(call: ToolCall, doc_id: UUID, page: int) -> ToolPage:
    found = await page_of(call.shared, call.caller, doc_id, page)
    row = found.row
    drawn = bool(row["image_sha256"])
    link = (
        call.links.page_image(row["bucket"], row["image_sha256"], row["mime"], row["filename"])
        if drawn
        else None
    )
    return ToolPage(
        doc_id=str(doc_id),
        container_id=found.document.container_id,
        page=page,
        pages=row["pages"],
        page_image="ready" if found.lack is None else found.lack.state,
        page_uri=link,
        notice=UNTRUSTED,
        untrusted_content=PageWords(text=row["text"][:READ_CHARS]),
    )


async def complete(
    call: ToolCall, of: str, argument: str, value: str, known: Mapping[str, str]
) -> Completion:
    """Values for an argument of a template (by its uri) or of a prompt (by its name)."""
    match of, argument:
        case ("container://{id}", "id") | (_, "container"):
            values = await _container_ids(call, value)
        case ("document://{id}", "id") | ("page://{doc}/{n}", "doc"):
            values = await _document_ids(call, value)
        case "page://{doc}/{n}", "n":
            values = await _pages(call, value, known.get("doc", ""))
        case _:
            values = []
    shown = values[:MAX_VALUES]
    return Completion(values=shown, total=len(values), has_more=len(values) > len(shown))


async def _container_ids(call: ToolCall, prefix: str) -> list[str]:
    async with call.shared.stack.db.reading() as conn:
        readable = await access.all_readable(conn, call.caller)
    return sorted(c.id for c in readable if c.id.startswith(prefix))


async def _document_ids(call: ToolCall, prefix: str) -> list[str]:
    """Ids with this prefix, in the first containers."""
    typed = prefix.lower()
    if not UUID_PREFIX.fullmatch(typed):
        return []
    digits = typed.replace("-", "")
    first = int(digits.ljust(32, "0"), 16) if len(digits) <= 32 else 0
    after = ListPosition(DocumentOrder.ID, UUID(int=first - 1)) if first else None
    found: list[str] = []
    async with call.shared.stack.db.reading() as conn:
        for container in (await access.all_readable(conn, call.caller))[:MAX_CONTAINERS]:
            rows = await document_listing.listed(
                conn, container.id, DocumentFilter(), after=after, limit=MAX_VALUES
            )
            found += [str(r.doc_id) for r in rows if str(r.doc_id).startswith(typed)]
    return sorted(found)


async def _pages(call: ToolCall, prefix: str, doc: str) -> list[str]:
    try:
        async with call.shared.stack.db.reading() as conn:
            view = await readable_document(conn, call.caller, UUID(doc))
    except (ValueError, NotFound):
        return []
    numbers = (str(n) for n in range(1, min(view.pages, MAX_PAGE) + 1))
    return [n for n in numbers if n.startswith(prefix)]
