"""The text of a document as a person reads it: its chunks in order, rendered, with the passage of a hit marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Final
from uuid import UUID

from markupsafe import Markup

from latent_core.db.connection import Connection
from latent_core.db.documents import chunk_listing
from latent_core.db.documents.chunk_listing import ChunkRow, ChunkSelection
from latent_core.domain.chunk import BlockType, Modality, SourceType
from latent_core.domain.document import DocumentView
from latent_core.search.snippet import highlighted
from latent_core.wire.chunks import ChunkView
from latent_gateway.api.chunks import view
from latent_gateway.console.documents.rendering import Renderer, TextBlock
from latent_gateway.console.frame.text_format import marked

CHUNKS: Final = 30
SECONDS: Final = 2.0
"""Longer lists of chunks end early."""
MARKDOWN: Final = frozenset(
    {
        SourceType.MARKDOWN,
        SourceType.WEB,
        SourceType.DOCUMENT,
        SourceType.SHEET,
        SourceType.SLIDES,
        SourceType.MAIL,
        SourceType.NOTEBOOK,
    }
)
"""Their text is Markdown, or becomes it when they are read."""
CODE: Final = {SourceType.CODE: "", SourceType.YAML: "yaml", SourceType.JSON: "json"}
"""The language where the name of the file does not say it."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk, with its text as HTML."""

    chunk: ChunkView
    html: Markup


@dataclass(frozen=True, slots=True)
class ChunkExcerpt:
    """Some chunks of a document, in order."""

    found: list[ChunkRow]
    following: int | None
    """The number after which the list continues; None where it is that of a page."""
    chosen: UUID | None = None
    page: int | None = None
    """The page of the chosen one."""
    paged: bool = False
    """Whether they are all chunks of one page."""


async def excerpt(
    conn: Connection,
    document: DocumentView,
    *,
    chosen: UUID | None,
    after: int,
    page: int | None,
) -> ChunkExcerpt:
    """The chunks of a page; of a document whose chunks have no pages, those from the chosen one on, else after the
    given number. A missing chunk is ignored: the document has changed."""
    hit = None
    if chosen is not None:
        hit = await chunk_listing.one(conn, document.container_id, chosen)
        hit = hit if hit is not None and hit.doc_id == document.doc_id else None
    number = page or (hit.page if hit is not None else None) or 1
    found = ChunkExcerpt([], None)
    if after < 0:
        found = await _of(conn, document, ChunkSelection(doc_id=document.doc_id, page=number), -1)
    found = replace(found, paged=bool(found.found))
    if not found.found:
        start = hit.chunk_no - 1 if hit is not None and after < 0 else after
        found = await _of(conn, document, ChunkSelection(doc_id=document.doc_id), start)
    return replace(
        found,
        chosen=hit.id if hit is not None else None,
        page=hit.page if hit is not None else None,
    )


async def _of(
    conn: Connection, document: DocumentView, selection: ChunkSelection, after: int
) -> ChunkExcerpt:
    found = await chunk_listing.find(
        conn, document.container_id, selection, after=after, limit=CHUNKS, seconds=SECONDS
    )
    return ChunkExcerpt(list(found.rows), found.more_after)


async def passages(
    renderer: Renderer, document: DocumentView, rows: Sequence[ChunkRow], query: str
) -> list[Passage]:
    """The chunks with their text rendered, and the words of ``query`` marked in them."""
    language = document.language or "simple"
    spans = [highlighted(row.text, language, query) if query else [] for row in rows]
    blocks = [_block(document, row, marks) for row, marks in zip(rows, spans, strict=True)]
    rendered = iter(await renderer.html([block for block in blocks if block is not None]))
    return [
        Passage(view(row), _plain(row, marks) if block is None else next(rendered))
        for row, marks, block in zip(rows, spans, blocks, strict=True)
    ]


def _block(
    document: DocumentView, row: ChunkRow, marks: Sequence[tuple[int, int]]
) -> TextBlock | None:
    """What of a chunk is rendered; None for plain text."""
    words = tuple(sorted({row.text[start:end].casefold() for start, end in marks}))
    source = SourceType(row.source_type)
    if row.modality == Modality.IMAGE.value:
        return None
    if row.generated is None and source in CODE:
        name = CODE[source] or PurePosixPath(document.source_uri).name
        return TextBlock("code", row.text, name, words)
    if row.block_type == BlockType.TABLE.value:
        return TextBlock("table", row.text, words=words)
    if source in MARKDOWN or row.generated is not None:
        return TextBlock("markdown", row.text, words=words)
    return None


def _plain(row: ChunkRow, marks: Sequence[tuple[int, int]]) -> Markup:
    return Markup('<p class="text">%s</p>') % marked(row.text, marks)
