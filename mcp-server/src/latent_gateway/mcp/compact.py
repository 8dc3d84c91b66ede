"""Hits in a compact form for models: what they need to judge, cite and continue, and as many as fit the budget.

A brief answer shows the first passages whole, and shorter excerpts of the later ones: most answers are in the first
passages, and a document that is named with an excerpt can be read. What no tool takes and no citation needs (ids of
chunks, scores, channels) is shown with ``detail: full`` only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from latent_core.domain.chunk import BlockType
from latent_core.domain.generated import GeneratedBy
from latent_core.domain.origin import Origin
from latent_core.search.plan import EXACT
from latent_core.search.snippet import excerpt
from latent_core.wire.search import Detail, Facet, FacetValue, Hit, PlaceView, Reason
from latent_gateway.mcp.results import IssueSummary, ToolResult, longest, size
from latent_gateway.mcp.tools.port import UntrustedContent

MIN_TEXT_BYTES: Final = 120
"""A text is omitted if fewer bytes of it would fit."""
WHOLE_SHARE: Final = 0.6
"""Share of a brief answer for whole passages."""
MAX_WHOLE_BYTES: Final = 2_400
"""Of a whole passage in a brief answer; a longer one is shown in part."""
EXCERPT_BYTES: Final = 420
"""Of the later passages of a brief answer."""
MAX_DUPLICATES: Final = 5
MAX_REASONS: Final = 8
MAX_LINES: Final = 10
MAX_PATTERN_BYTES: Final = 200
MAX_FACET_VALUES: Final = 10
MAX_FACET_BYTES: Final = 100
"""Of one value."""
MARK: Final = "..."


class CompactContent(UntrustedContent):
    """The text of a hit."""

    title: str
    source: str
    section: str = ""
    snippet: str = ""
    """brief: the passage, or a part of it between ``...``."""
    text: str = ""
    before: list[str] = []
    after: list[str] = []
    key_path: str | None = None
    meta: dict[str, Any] = {}


class DuplicateCopy(ToolResult):
    """Another document with nearly the same text."""

    doc_id: str
    score: float


class CompactReason(ToolResult):
    """Where a term, an expression or a path of the request matched; in full also the channels that found the hit."""

    term: str | None = None
    regex: str | None = None
    path: str | None = None
    count: int | None = None
    lines: list[int] = []
    """The first ones with a match."""
    page: int | None = None
    channel: str | None = None


class CompactHit(ToolResult):
    container_id: str
    doc_id: str
    page: int | None = None
    """Of the best match in the passage."""
    page_end: int | None = None
    """The last page of the passage, if it is a later one."""
    lines: list[int] = []
    """First and last line."""
    modified_at: str | None = None
    origin: str | None = None
    """person or agent: a note or conversation that was written down, not a source."""
    written_by: str | None = None
    written_at: str | None = None
    superseded_by: str | None = None
    """It is out of date: this document replaces it."""
    why: list[CompactReason] = []
    weak: bool = False
    """Rather irrelevant; only where the container marks such hits."""
    cite_as: str | None = None
    """The page to cite."""
    page_image: str = "none"
    """In brief only if the image shows more than the text."""
    read_as: str = "text"
    """image: the page's PDF or image shows more than the text."""
    visual_importance: int | None = None
    """1 to 5; in brief only from 4, where the page is to be seen."""
    visual_importance_by: str | None = None
    """model or measure."""
    page_pdf_uri: str | None = None
    next_page_pdf_uri: str | None = None
    """The page after it, if it was consulted."""
    generated: GeneratedBy | None = None
    """Of a text that a language model wrote about the document: what it is, the model, the version of its prompt, when."""
    chunk_id: str | None = None
    score: float | None = None
    relevance: float | None = None
    uri: str | None = None
    """Of the MCP resource: the page, else the document."""
    modality: str = "text"
    source_type: str | None = None
    page_uri: str | None = None
    also_in_document: int = 0
    """Further matching passages of the same document."""
    duplicates: list[DuplicateCopy] = []
    text_truncated: bool = False
    untrusted_content: CompactContent


class FacetCounts(ToolResult):
    """Matching documents by the values of a field."""

    documents: int
    untrusted_content: FacetContent
    other_values: int = 0
    """Number of the values that are not listed."""
    missing: int = 0
    """Documents without a value."""


class FacetContent(UntrustedContent):
    values: list[FacetValue]


class ToolSearchResult(ToolResult):
    """Answer of ``containers_search``."""

    hits: list[CompactHit]
    notice: str
    truncated: bool = False
    next_cursor: str | None = None
    partial: bool = False
    issues: list[IssueSummary] = []
    facets: dict[str, FacetCounts] = {}
    advice: str | None = None


def facet_content(facet: Facet) -> FacetCounts:
    values = [one for one in facet.values if size(one.value) <= MAX_FACET_BYTES][:MAX_FACET_VALUES]
    return FacetCounts(
        documents=facet.documents,
        untrusted_content=FacetContent(values=values),
        other_values=facet.other_values + len(facet.values) - len(values),
        missing=facet.missing,
    )


@dataclass(frozen=True, slots=True)
class CompactFit:
    hits: list[CompactHit]
    truncated: bool
    """Some hits were omitted, or a text was shortened."""


def fit(hits: Sequence[Hit], detail: Detail, max_bytes: int) -> CompactFit:
    """The first of ``hits`` that fit into ``max_bytes``; at least one, shortened if necessary."""
    left = max_bytes
    whole = int(left * WHOLE_SHARE)
    kept: list[CompactHit] = []
    for hit in hits:
        shown = full(hit) if detail == "full" else brief(hit, whole)
        needed = size(shown.compact()) + 1
        if needed > left:
            short = _shortened(shown, left, must=not kept)
            return CompactFit([*kept, short] if short else kept, truncated=True)
        kept.append(shown)
        left -= needed
        whole -= needed
    return CompactFit(_grown(hits, kept, left) if detail == "brief" else kept, truncated=False)


def _grown(hits: Sequence[Hit], kept: Sequence[CompactHit], left: int) -> list[CompactHit]:
    """Brief hits with longer texts where the ``left`` bytes allow it, the best first."""
    grown = []
    for hit, shown in zip(hits, kept, strict=True):
        used = size(shown.compact())
        longer = brief(hit, used + left)
        extra = size(longer.compact()) - used
        if 0 < extra <= left:
            left -= extra
            shown = longer
        grown.append(shown)
    return grown


def full(hit: Hit) -> CompactHit:
    """Everything about a hit, with its whole text."""
    return _cited(hit).model_copy(
        update={
            "why": _reasons(hit.why),
            "page_image": hit.page_image,
            "visual_importance": hit.visual_importance,
            "visual_importance_by": hit.visual_importance_by,
            "page_pdf_uri": hit.page_pdf_uri,
            "next_page_pdf_uri": hit.next_page_pdf_uri,
            "modified_at": _moment(hit.modified_at),
            "chunk_id": str(hit.chunk_id),
            "score": round(hit.score, 4),
            "relevance": hit.relevance,
            "uri": resource_uri(hit),
            "modality": hit.modality,
            "source_type": hit.source_type,
            "page_uri": hit.page_uri,
            "also_in_document": len(hit.also_in_document),
            "duplicates": [
                DuplicateCopy(doc_id=str(d.doc_id), score=round(d.score, 4))
                for d in hit.duplicates[:MAX_DUPLICATES]
            ],
            "untrusted_content": _content(hit, "" if hit.text else hit.snippet).model_copy(
                update={
                    "text": hit.text or "",
                    "key_path": hit.place.key_path,
                    "meta": hit.meta,
                }
            ),
        }
    )


def brief(hit: Hit, whole: int) -> CompactHit:
    """What a citation needs and the passage, whole if it takes at most ``whole`` bytes of the answer."""
    shown = _cited(hit)
    left = whole - size(shown.compact())
    text = hit.text or hit.snippet
    if size(text) > min(left, MAX_WHOLE_BYTES):
        text = _excerpt(hit, max(EXCERPT_BYTES, min(left, MAX_WHOLE_BYTES)))
    content = shown.untrusted_content.model_copy(update={"snippet": text})
    return shown.model_copy(update={"untrusted_content": content})


def _cited(hit: Hit) -> CompactHit:
    """The hit without its passage."""
    place, page = hit.place, hit.provenance.page
    return CompactHit(
        container_id=hit.container_id,
        doc_id=str(hit.doc_id),
        page=page,
        page_end=place.page_end if page and place.page_end and place.page_end > page else None,
        lines=_lines(place),
        modified_at=hit.modified_at.date().isoformat() if hit.modified_at else None,
        why=_reasons([reason for reason in hit.why if reason.channel == EXACT]),
        weak=hit.weak,
        cite_as=hit.cite_as,
        generated=hit.generated,
        untrusted_content=_content(hit, ""),
        **_routing(hit),
        **_authorship(hit),
    )


def _routing(hit: Hit) -> dict[str, Any]:
    """What to read instead of the text, for a page that is to be seen."""
    if hit.read_as != "image":
        return {}
    return {
        "page_image": hit.page_image,
        "read_as": hit.read_as,
        "visual_importance": hit.visual_importance,
        "visual_importance_by": hit.visual_importance_by,
        "page_uri": hit.page_uri,
        "page_pdf_uri": hit.page_pdf_uri,
        "next_page_pdf_uri": hit.next_page_pdf_uri,
    }


def _authorship(hit: Hit) -> dict[str, str | None]:
    """Who wrote a note down, and when. For a source its own date counts."""
    superseded = str(hit.superseded_by) if hit.superseded_at and hit.superseded_by else None
    if hit.origin not in (Origin.PERSON, Origin.AGENT):
        return {"superseded_by": superseded}
    return {
        "origin": hit.origin.value,
        "written_by": hit.written_by,
        "written_at": _moment(hit.written_at),
        "superseded_by": superseded,
    }


def _content(hit: Hit, snippet: str) -> CompactContent:
    return CompactContent(
        title=hit.source_path if hit.title == hit.source_uri else hit.title,
        source=hit.source_path,
        section=_section(hit),
        snippet=snippet,
        before=[one.text for one in hit.before],
        after=[one.text for one in hit.after],
    )


def _section(hit: Hit) -> str:
    """The headings above the passage, without the title of the document."""
    path = hit.place.heading_path
    if path == hit.title:
        return ""
    return path.removeprefix(f"{hit.title} > ")


def _reasons(why: Sequence[Reason]) -> list[CompactReason]:
    exact = [_exact_reason(reason) for reason in why if reason.channel == EXACT]
    channels = [reason.channel for reason in why if reason.channel != EXACT]
    return [*exact[:MAX_REASONS], *(CompactReason(channel=c) for c in dict.fromkeys(channels))]


def _exact_reason(reason: Reason) -> CompactReason:
    return CompactReason(
        term=_pattern(reason.term),
        regex=_pattern(reason.regex),
        path=_pattern(reason.path),
        count=reason.count,
        lines=reason.lines[:MAX_LINES],
        page=reason.page,
    )


def _pattern(given: str | None) -> str | None:
    return None if given is None else cut(given, MAX_PATTERN_BYTES)


def _excerpt(hit: Hit, max_bytes: int) -> str:
    """The part of the passage around its snippet."""
    text = hit.text or ""
    start = text.find(hit.snippet)
    if not hit.snippet or start < 0:
        return cut(hit.snippet or text, max_bytes)
    chars = max_bytes * len(text) // size(text)
    table = hit.block_type == BlockType.TABLE.value
    return cut(excerpt(text, start, start + len(hit.snippet), chars, table=table), max_bytes)


def resource_uri(hit: Hit) -> str:
    if hit.provenance.page is None:
        return f"document://{hit.doc_id}"
    return f"page://{hit.doc_id}/{hit.provenance.page}"


def _moment(value: datetime | None) -> str | None:
    return value.isoformat(timespec="seconds") if value else None


def _lines(place: PlaceView) -> list[int]:
    if place.line_start is None:
        return []
    return [place.line_start, place.line_end or place.line_start]


def _shortened(hit: CompactHit, budget: int, *, must: bool) -> CompactHit | None:
    """The hit with as much text as fits; None if too little fits and it is not a ``must``."""
    content = hit.untrusted_content
    bare = content.model_copy(
        update={"before": [], "after": [], "meta": {}, "text": "", "snippet": "", "section": ""}
    )
    update = {
        "text_truncated": True,
        "duplicates": [],
        "why": [],
        "page_uri": None,
        "page_pdf_uri": None,
        "next_page_pdf_uri": None,
    }
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
