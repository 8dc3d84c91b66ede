"""``documents_list`` and ``documents_outline``."""

from __future__ import annotations

from typing import Annotated, Final, Literal
from uuid import UUID

from pydantic import Field

from latent_core.db.documents.document_listing import DocumentFilter
from latent_core.domain import cursors
from latent_core.domain.chunk import SourceType
from latent_core.domain.document import DocumentState, DocumentView
from latent_core.domain.document_order import DocumentOrder, ListPosition
from latent_core.domain.errors import Invalid
from latent_core.domain.origin import Origin
from latent_core.domain.text import Text
from latent_core.wire.base import Moment
from latent_gateway.api.documents import listed_documents, outlined
from latent_gateway.api.pages import readable_document
from latent_gateway.auth import access
from latent_gateway.mcp.calls import Scope, ToolCall
from latent_gateway.mcp.compact import cut
from latent_gateway.mcp.results import DEFAULT_CHARS, ToolResult, size
from latent_gateway.mcp.tools.arguments import CLAMPED
from latent_gateway.mcp.tools.containers import ContainerId
from latent_gateway.mcp.tools.documents import failure_words
from latent_gateway.mcp.tools.port import (
    UNTRUSTED,
    Arguments,
    Cursor,
    DocId,
    MaxChars,
    Tool,
    UntrustedContent,
)

ENVELOPE_BYTES: Final = 400
TITLE_CHARS: Final = 160
SOURCE_CHARS: Final = 300
DEFAULT_LIMIT: Final = 50
NO_HEADINGS: Final = "The document has no headings: documents_get reads it by page or lines."


class ListArguments(Arguments):
    container_id: ContainerId
    path: Annotated[
        Text | None, Field(max_length=1000, description="Glob or part of the path.")
    ] = None
    source_type: Annotated[Text | None, Field(max_length=40, description="Such as pdf.")] = None
    origin: Annotated[Origin | None, Field(description="person, agent: notes.")] = None
    written_by: Annotated[Text | None, Field(max_length=128)] = None
    session: Annotated[Text | None, Field(max_length=200)] = None
    since: Moment | None = None
    until: Moment | None = None
    state: Literal["live", "pending", "failed"] | None = None
    include_superseded: bool = False
    limit: Annotated[int, Field(ge=1, le=cursors.MAX_PAGE, description="Default 50."), CLAMPED] = (
        DEFAULT_LIMIT
    )
    max_chars: MaxChars = DEFAULT_CHARS
    cursor: Cursor = None


class ListedWords(UntrustedContent):
    title: str
    source: str
    failure: str | None = None


class ListedDocument(ToolResult):
    doc_id: str
    source_type: str | None = None
    state: str = "live"
    pages: int = 0
    origin: str = "file"
    written_by: str | None = None
    written_at: str | None = None
    superseded_by: str | None = None
    untrusted_content: ListedWords


class ToolDocumentList(ToolResult):
    documents: list[ListedDocument]
    notice: str
    next_cursor: str | None = None


async def list_(call: ToolCall, arguments: ListArguments) -> ToolDocumentList:
    chosen = DocumentFilter(
        path=arguments.path,
        source_types=_source_types(arguments.source_type),
        state=None if arguments.state is None else DocumentState(arguments.state),
        origins=None if arguments.origin is None else [arguments.origin],
        written_by=arguments.written_by,
        session=arguments.session,
        since=arguments.since,
        until=arguments.until,
        superseded=arguments.include_superseded,
    )
    async with call.shared.stack.db.reading() as conn:
        container = await access.readable_one(conn, call.caller, arguments.container_id)
        page = await listed_documents(
            conn,
            container.id,
            chosen,
            DocumentOrder.NEWEST,
            cursor=arguments.cursor,
            limit=arguments.limit,
        )
    shown: list[ListedDocument] = []
    left = arguments.max_chars - ENVELOPE_BYTES
    for view in page.documents:
        one = _listed(view)
        left -= size(one.compact()) + 1
        if left < 0 and shown:
            last = page.documents[len(shown) - 1]
            return _list(shown, ListPosition.of(last, DocumentOrder.NEWEST).cursor())
        shown.append(one)
    return _list(shown, page.next_cursor)


def _source_types(name: str | None) -> list[str] | None:
    if name is None:
        return None
    if name not in list(SourceType):
        raise Invalid(f"source_type '{name}' does not exist: use one of {', '.join(SourceType)}")
    return [name]


def _list(shown: list[ListedDocument], next_cursor: str | None) -> ToolDocumentList:
    return ToolDocumentList(documents=shown, notice=UNTRUSTED, next_cursor=next_cursor)


def _listed(view: DocumentView) -> ListedDocument:
    source = view.source_uri.removeprefix("file:///")
    return ListedDocument(
        doc_id=str(view.doc_id),
        source_type=view.source_type,
        state=view.state.value,
        pages=view.pages,
        origin=view.origin.value,
        written_by=view.written_by,
        written_at=view.written_at.isoformat(timespec="seconds") if view.written_at else None,
        superseded_by=str(view.superseded_by) if view.superseded_at else None,
        untrusted_content=ListedWords(
            title=cut(view.title or source, TITLE_CHARS),
            source=cut(source, SOURCE_CHARS),
            failure=failure_words(view),
        ),
    )


class OutlineArguments(Arguments):
    doc_id: DocId
    max_chars: MaxChars = DEFAULT_CHARS


class SectionWords(UntrustedContent):
    heading: str


class ToolSection(ToolResult):
    id: str
    level: int
    lines: list[int] = []
    pages: list[int] = []
    characters: int
    untrusted_content: SectionWords


class ToolOutline(ToolResult):
    doc_id: str
    pages: int = 0
    sections: list[ToolSection]
    notice: str
    truncated: bool = False
    advice: str | None = None


async def outline(call: ToolCall, arguments: OutlineArguments) -> ToolOutline:
    async with call.shared.stack.db.reading() as conn:
        view = await readable_document(conn, call.caller, UUID(arguments.doc_id))
        found = await outlined(conn, view)
    left = arguments.max_chars - ENVELOPE_BYTES
    shown: list[ToolSection] = []
    for section in found.sections:
        one = ToolSection(
            id=section.id,
            level=section.level,
            lines=_span(section.line_start, section.line_end),
            pages=_span(section.page, section.page_end),
            characters=section.characters,
            untrusted_content=SectionWords(heading=cut(section.heading, TITLE_CHARS)),
        )
        left -= size(one.compact()) + 1
        if left < 0:
            break
        shown.append(one)
    headed = any(section.level for section in found.sections)
    return ToolOutline(
        doc_id=str(view.doc_id),
        pages=found.pages,
        sections=shown,
        notice=UNTRUSTED,
        truncated=len(shown) < len(found.sections) or found.partial,
        advice=None if headed else NO_HEADINGS,
    )


def _span(first: int | None, last: int | None) -> list[int]:
    return [] if first is None else [first, last or first]


LIST: Final = Tool(
    name="documents.list",
    title="List documents",
    description="List the documents and notes of a container, newest first.",
    scope=Scope.READ,
    arguments=ListArguments,
    answer=ToolDocumentList,
    run=list_,
)
OUTLINE: Final = Tool(
    name="documents.outline",
    title="Outline of a document",
    description="The headings of a document with their lines and pages; documents_get reads a section.",
    scope=Scope.READ,
    arguments=OutlineArguments,
    answer=ToolOutline,
    run=outline,
)
