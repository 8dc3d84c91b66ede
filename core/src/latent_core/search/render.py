"""Render hits for people and agents. Links are signed here; server paths never appear."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Protocol
from uuid import UUID

from typing_extensions import override

from latent_core.bm25.analyser import spans
from latent_core.bm25.literal import places
from latent_core.db.connection import Database
from latent_core.db.containers import Space
from latent_core.db.documents import chunk_texts
from latent_core.db.documents.chunk_texts import NeighbourRow
from latent_core.db.documents.chunks import HitRow, PageFiles, PlaceRow, Position
from latent_core.db.documents.pages import MissingImage, missing_image
from latent_core.domain.chunk import FRONT_MATTER, TIMESTAMPS, BlockType, Modality
from latent_core.domain.generated import GeneratedBy
from latent_core.domain.manifest.model import Display
from latent_core.domain.origin import Origin
from latent_core.domain.table import header_above, header_row
from latent_core.domain.visual_importance import Importance, ImportanceBy, judged, read_as
from latent_core.search.container_search import ContainerCandidates
from latent_core.search.hit_pages import HitPages
from latent_core.search.hydrate import HydratedRows
from latent_core.search.plan import EXACT, VECTOR
from latent_core.search.ranking import Group, RankedCandidate
from latent_core.search.relevance import is_weak
from latent_core.search.snippet import Snippet, make_snippet
from latent_core.wire.search import (
    AlsoInDocument,
    Duplicate,
    Hit,
    Neighbour,
    PlaceView,
    Provenance,
    Reason,
)


class LinkSigner(Protocol):
    """Signs links to blobs."""

    def page_image(self, bucket: str, sha256: str, mime: str, filename: str) -> str: ...

    def link(self, bucket: str, sha256: str, mime: str, disposition: str, filename: str) -> str: ...


class NoLinks(LinkSigner):
    """For evaluations and refresh gates, whose hits are never opened."""

    @override
    def page_image(self, bucket: str, sha256: str, mime: str, filename: str) -> str:
        return ""

    @override
    def link(self, bucket: str, sha256: str, mime: str, disposition: str, filename: str) -> str:
        return ""


def render(
    groups: Sequence[Group],
    found: HydratedRows,
    retrieved: Sequence[ContainerCandidates],
    links: LinkSigner,
) -> list[list[Hit]]:
    """Hits of those groups whose best chunk is still visible: the best one, then the passages in document order. A
    passage that repeats a shown chunk of another document is omitted."""
    by_container = {r.plan.container.id: r for r in retrieved}
    best = [(g, row) for g in groups if (row := found.chunk(g.best)) is not None]
    shown = {
        key: row.doc_id
        for g, row in best
        for key in _text_keys(row, by_container[g.best.container_id])
    }
    documents = []
    for group, row in best:
        container = by_container[group.best.container_id]
        hits = [_hit(group, row, found, container, links)]
        for passage, its_row in _passages(group, found):
            keys = _text_keys(its_row, container)
            if all(shown.setdefault(key, row.doc_id) == row.doc_id for key in keys):
                hits.append(_hit(Group(passage), its_row, found, container, links))
        documents.append(hits)
    return documents


def _passages(group: Group, found: HydratedRows) -> list[tuple[RankedCandidate, HitRow]]:
    """Those that are still visible, in document order."""
    rows = [(one, row) for one in group.passages if (row := found.chunk(one)) is not None]
    return sorted(rows, key=lambda pair: pair[1].position)


def _text_keys(row: HitRow, retrieved: ContainerCandidates) -> list[str | tuple[str, int]]:
    """One key that identical texts share, and one that near-duplicates in the container share; a search by words alone
    knows no near-duplicates."""
    if VECTOR not in retrieved.plan.channels:
        return [row.text]
    original = row.chunk_no if row.original is None else row.original
    return [row.text, (retrieved.plan.container.id, original)]


@dataclass(frozen=True, slots=True)
class _Look:
    """The page of a hit, where its snippet stands, and the links."""

    number: int | None
    uri: str | None
    """None while this page has no image, though others may have one."""
    uris: list[str]
    pdf_uri: str | None
    next_pdf_uri: str | None
    importance: Importance | None
    importance_by: ImportanceBy | None
    share: float | None
    """Of pictures on the page, measured."""
    lack: MissingImage
    """Why there is no image."""


def _look(row: HitRow, page: PageFiles | None, bucket: str, links: LinkSigner) -> _Look:
    uris = [_page_uri(one, bucket, links) for one in row.pages]
    share = picture_share(page.visual if page else None, row.modality)
    importance, importance_by = judged(page.importance if page else None, share)
    return _Look(
        number=page.page if page else row.page,
        uri=_page_uri(page, bucket, links) if page else None,
        uris=[uri for uri in uris if uri is not None],
        pdf_uri=_page_pdf_uri(page, bucket, links),
        next_pdf_uri=_next_page_pdf_uri(page, bucket, links),
        importance=importance,
        importance_by=importance_by,
        share=share,
        lack=missing_image(row.drawing),
    )


def _hit(
    group: Group,
    row: HitRow,
    found: HydratedRows,
    retrieved: ContainerCandidates,
    links: LinkSigner,
) -> Hit:
    display = retrieved.plan.container.manifest.display
    snippet = make_snippet(
        found.caption(row) or row.text,
        row.language or "simple",
        retrieved.terms,
        display.max_snippet_chars,
        spans,
        head=len(header_row(row.text)) if row.block_type == BlockType.TABLE.value else 0,
        exact=[
            *(retrieved.matcher.spans(row.text) if retrieved.matcher else ()),
            *(places(row.text, retrieved.phrases) if retrieved.phrases else ()),
        ],
        prose=row.block_type not in (BlockType.TABLE.value, BlockType.CODE.value),
    )
    pages = HitPages.of(row)
    look = _look(row, pages.best(snippet), retrieved.plan.container.bucket, links)
    return Hit(
        container_id=group.best.container_id,
        doc_id=row.doc_id,
        chunk_id=row.id,
        external_id=row.external_id,
        modality=row.modality,
        source_type=row.source_type,
        block_type=row.block_type,
        score=group.best.score,
        base_score=group.best.base,
        relevance=group.best.relevance,
        weak=is_weak(group.best.relevance) and retrieved.plan.marks_weak,
        freshness=group.best.freshness,
        title=row.title or row.uri,
        snippet=snippet.text,
        highlights=snippet.highlights,
        rendered_snippet=_rendered(display, snippet, row, group.best.score),
        text=row.text,
        uri=look.uri,
        page_uri=look.uri,
        page_uris=look.uris,
        page_image="ready" if look.uri else look.lack.state,
        page_image_cause=None if look.uri else look.lack.cause,
        page_pdf_uri=look.pdf_uri,
        next_page_pdf_uri=look.next_pdf_uri,
        read_as=read_as(look.importance),
        visual_importance=look.importance,
        visual_importance_by=look.importance_by,
        visual_share=look.share,
        cite_as=None if look.number is None else f"p. {look.number}",
        offsets=(row.offset_start, row.offset_end),
        place=place_view(row),
        source_path=source_path(row.uri),
        source_uri=row.uri,
        why=_why(retrieved, row, pages),
        origin=Origin(row.origin),
        written_by=row.written_by,
        written_at=row.written_at,
        superseded_by=row.superseded_by,
        superseded_at=row.superseded_at,
        modified_at=row.source_modified_at,
        fetched_at=row.fetched_at,
        indexed_at=row.created_at,
        provenance=_provenance(row, look.number, retrieved.plan.container.space),
        generated=GeneratedBy.of(row.provenance),
        timestamps=row.meta.get(TIMESTAMPS, []),
        meta={
            **row.doc_meta,
            **{k: v for k, v in row.meta.items() if k not in (FRONT_MATTER, TIMESTAMPS)},
        },
        also_in_document=[
            AlsoInDocument(chunk_id=other.id, score=c.score, place=place_view(other))
            for c in group.others
            if (other := found.place(c)) is not None
        ],
        duplicates=[
            _duplicate(c, other) for c in group.duplicates if (other := found.place(c)) is not None
        ],
    )


def _duplicate(candidate: RankedCandidate, row: PlaceRow) -> Duplicate:
    return Duplicate(
        container_id=candidate.container_id,
        doc_id=row.doc_id,
        chunk_id=row.id,
        title=row.title or row.uri,
        source_uri=row.uri,
        score=candidate.score,
        place=place_view(row),
    )


def place_view(row: Position) -> PlaceView:
    """The place of a chunk."""
    return PlaceView(
        page=row.page,
        page_end=row.page_end,
        line_start=row.line_start,
        line_end=row.line_end,
        heading_path=" > ".join(row.heading_path),
        key_path=row.key_path,
        table_id=row.table_id,
        row_group=row.row_group,
    )


def source_path(uri: str) -> str:
    """The uri without ``file:///``; other uris unchanged."""
    return uri.removeprefix("file:///")


def _why(retrieved: ContainerCandidates, row: HitRow, pages: HitPages) -> list[Reason]:
    reasons: list[Reason] = []
    for channel, ranked in sorted(retrieved.lists.items()):
        if row.chunk_no not in ranked.keys:
            continue
        at = ranked.keys.index(row.chunk_no)
        reason = Reason(channel=channel, rank=at + 1, score=round(ranked.scores[at], 6))
        reasons += _exactly(reason, retrieved, row, pages) if channel == EXACT else [reason]
    return reasons


def _exactly(
    reason: Reason, retrieved: ContainerCandidates, row: HitRow, pages: HitPages
) -> list[Reason]:
    """One reason per matching term, expression and path."""
    match = retrieved.matches.get(row.chunk_no)
    reasons = [
        reason.model_copy(
            update={
                one.kind: one.pattern,
                "count": one.count,
                "lines": list(one.lines),
                "page": page.page if (page := pages.at(one.first)) else row.page,
            }
        )
        for one in (match.found if match else ())
    ]
    if retrieved.path_like is not None:
        reasons.append(reason.model_copy(update={"path": retrieved.path_like}))
    return reasons


def _provenance(row: HitRow, page: int | None, space: Space) -> Provenance:
    """Provenance with the model of the searched space, which may be newer than the chunk."""
    stored = row.provenance
    fetched: datetime | None = row.fetched_at
    embedder, version = space.embedder, space.version
    if space.is_adapted:
        # The collection holds vectors of both models: each chunk stores its own.
        embedder, version = stored["embedder"], stored["embedder_version"]
    elif row.mapped:
        version += "+mapped"
    return Provenance(
        source_uri=row.uri,
        sha256=row.sha256,
        fetched_at=fetched,
        handler=stored["handler"],
        handler_version=stored["handler_version"],
        embedder=embedder,
        embedder_version=version,
        page=page,
        generation=row.generation,
    )


def _page_uri(page: PageFiles, bucket: str, links: LinkSigner) -> str | None:
    if not (page.image_sha256 and page.mime and page.filename):
        return None
    return links.page_image(bucket, page.image_sha256, page.mime, page.filename)


def _page_pdf_uri(page: PageFiles | None, bucket: str, links: LinkSigner) -> str | None:
    if page is None or not (page.pdf_sha256 and page.pdf_mime and page.pdf_filename):
        return None
    return links.link(bucket, page.pdf_sha256, page.pdf_mime, "inline", page.pdf_filename)


def _next_page_pdf_uri(page: PageFiles | None, bucket: str, links: LinkSigner) -> str | None:
    if page is None or not (page.next_pdf_sha256 and page.next_pdf_mime and page.next_pdf_filename):
        return None
    return links.link(
        bucket, page.next_pdf_sha256, page.next_pdf_mime, "inline", page.next_pdf_filename
    )


def _rendered(display: Display, snippet: Snippet, row: HitRow, score: float) -> str:
    return "".join(
        literal + (_variable(name, snippet, row, score) if name else "")
        for literal, name in _parsed(display.snippet_template)
    )


@lru_cache(maxsize=256)
def _parsed(template: str) -> tuple[tuple[str, str | None], ...]:
    """Literal text, and the variable after it."""
    return tuple((literal, name) for literal, name, _, _ in string.Formatter().parse(template))


def _variable(name: str, snippet: Snippet, row: HitRow, score: float) -> str:
    """The value of a template variable; missing metadata is empty."""
    match name:
        case "snippet":
            return f"{header_above(row.text, row.block_type, snippet.text)}{snippet.marked()}"
        case "title":
            return str(row.title or row.uri)
        case "doc_id":
            return str(row.doc_id)
        case "score":
            return f"{score:.2f}"
    value = row.doc_meta.get(name, "")
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def picture_share(measured: float | None, modality: str) -> float | None:
    """0 to 1; always 1 for an image; None if unknown."""
    return 1.0 if modality == Modality.IMAGE.value else measured


async def with_neighbours(
    db: Database, documents: Sequence[list[Hit]], positions: Mapping[UUID, int], reach: int
) -> list[list[Hit]]:
    """The hits with up to ``reach`` chunks on either side; ``positions`` are theirs."""
    chosen = [
        (hit.doc_id, hit.provenance.generation, positions[hit.chunk_id])
        for hits in documents
        for hit in hits
    ]
    if not chosen:
        return []
    async with db.reading() as conn:
        rows = await chunk_texts.around(conn, chosen, reach)
    return [[_with_neighbours(hit, positions[hit.chunk_id], rows) for hit in d] for d in documents]


def _with_neighbours(hit: Hit, at: int, rows: Sequence[NeighbourRow]) -> Hit:
    own = [row for row in rows if (row.doc_id, row.hit_position) == (hit.doc_id, at)]
    before = [_neighbour(row) for row in own if row.position < at]
    after = [_neighbour(row) for row in own if row.position > at]
    return hit.model_copy(update={"before": before, "after": after})


def _neighbour(row: NeighbourRow) -> Neighbour:
    return Neighbour(chunk_id=row.id, text=row.text, place=place_view(row))
