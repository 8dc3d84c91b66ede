"""Hits in a compact form for models: what they need to judge, cite and continue, and as many as fit the budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from latent_core.wire.search import Detail, Hit, PlaceView
from latent_gateway.mcp.results import IssueSummary, ToolResult, longest, size
from latent_gateway.mcp.tools.port import UntrustedContent

ENVELOPE_BYTES: Final = 900
"""Size of an answer without its hits: cursor, advice, a few issues."""
MIN_TEXT_BYTES: Final = 120
"""A text is omitted if fewer bytes of it would fit."""
MARK: Final = "..."


class CompactContent(UntrustedContent):
    """The text of a hit."""

    title: str
    source: str
    snippet: str = ""
    text: str = ""
    before: list[str] = []
    after: list[str] = []
    section: str = ""
    key_path: str | None = None
    meta: dict[str, Any] = {}


class DuplicateCopy(ToolResult):
    """Another document with nearly the same text."""

    doc_id: str
    score: float


class CompactHit(ToolResult):
    container_id: str
    doc_id: str
    chunk_id: str
    score: float
    uri: str
    """Of the MCP resource: the page, else the document."""
    page: int | None = None
    page_end: int | None = None
    lines: list[int] = []
    """First and last line."""
    modality: str = "text"
    source_type: str
    why: list[str] = []
    """Channels that found it."""
    page_image: str = "none"
    page_uri: str | None = None
    modified_at: str | None = None
    also_in_document: int = 0
    """Further matching passages of the same document."""
    duplicates: list[DuplicateCopy] = []
    text_truncated: bool = False
    untrusted_content: CompactContent


class ToolSearchResult(ToolResult):
    """Answer of ``containers_search``."""

    hits: list[CompactHit]
    notice: str
    truncated: bool = False
    next_cursor: str | None = None
    partial: bool = False
    issues: list[IssueSummary] = []
    advice: str | None = None


@dataclass(frozen=True, slots=True)
class CompactFit:
    hits: list[CompactHit]
    truncated: bool
    """Some hits were omitted, or a text was shortened."""


def fit(hits: Sequence[Hit], detail: Detail, max_bytes: int) -> CompactFit:
    """The first of ``hits`` that fit into an answer of ``max_bytes``; at least one, shortened if necessary."""
    left = max_bytes - ENVELOPE_BYTES
    kept: list[CompactHit] = []
    for hit in hits:
        shown = compact(hit, detail)
        needed = size(shown.compact()) + 1
        if needed > left:
            short = _shortened(shown, left, must=not kept)
            return CompactFit([*kept, short] if short else kept, truncated=True)
        kept.append(shown)
        left -= needed
    return CompactFit(kept, truncated=False)


def compact(hit: Hit, detail: Detail) -> CompactHit:
    full = detail == "full"
    place = hit.place
    return CompactHit(
        container_id=hit.container_id,
        doc_id=str(hit.doc_id),
        chunk_id=str(hit.chunk_id),
        score=round(hit.score, 4),
        uri=resource_uri(hit),
        page=place.page,
        page_end=None if place.page_end == place.page else place.page_end,
        lines=_lines(place),
        modality=hit.modality,
        source_type=hit.source_type,
        why=list(dict.fromkeys(reason.channel for reason in hit.why)),
        page_image=hit.page_image,
        page_uri=hit.page_uri if full else None,
        modified_at=hit.modified_at.isoformat(timespec="seconds") if hit.modified_at else None,
        also_in_document=len(hit.also_in_document),
        duplicates=[
            DuplicateCopy(doc_id=str(d.doc_id), score=round(d.score, 4)) for d in hit.duplicates[:5]
        ],
        untrusted_content=_compact_content(hit, full),
    )


def resource_uri(hit: Hit) -> str:
    if hit.place.page is None:
        return f"document://{hit.doc_id}"
    return f"page://{hit.doc_id}/{hit.place.page}"


def _lines(place: PlaceView) -> list[int]:
    if place.line_start is None:
        return []
    return [place.line_start, place.line_end or place.line_start]


def _compact_content(hit: Hit, full: bool) -> CompactContent:
    return CompactContent(
        title=hit.title,
        source=hit.source_path,
        snippet="" if full and hit.text else hit.snippet,
        text=(hit.text or "") if full else "",
        before=[one.text for one in hit.before],
        after=[one.text for one in hit.after],
        section=hit.place.heading_path,
        key_path=hit.place.key_path,
        meta=hit.meta if full else {},
    )


def _shortened(hit: CompactHit, budget: int, *, must: bool) -> CompactHit | None:
    """The hit with as much text as fits; None if too little fits and it is not a ``must``."""
    content = hit.untrusted_content
    bare = content.model_copy(
        update={"before": [], "after": [], "meta": {}, "text": "", "snippet": "", "section": ""}
    )
    update = {"text_truncated": True, "duplicates": [], "page_uri": None}
    if must:
        bare = bare.model_copy(
            update={"title": cut(content.title, 200), "source": cut(content.source, 300)}
        )
    short = hit.model_copy(update={**update, "untrusted_content": bare})
    left = budget - size(short.compact()) - len('"snippet":"",')
    if left < MIN_TEXT_BYTES and not must:
        return None
    field = "text" if content.text else "snippet"
    whole = content.text or content.snippet
    texts = {field: cut(whole, max(left, 0))}
    return short.model_copy(update={"untrusted_content": bare.model_copy(update=texts)})


def cut(text: str, budget: int) -> str:
    """The longest beginning of ``text`` that takes at most ``budget`` bytes as JSON without quotes, cut at a whole
    word."""
    if size(text) - 2 <= budget:
        return text
    head = longest(text, budget - len(MARK))
    word = max(head.rfind(" "), head.rfind("\n"))
    return (head[:word] if word > len(head) // 2 else head) + MARK if head else ""
