"""Chunk, embed and append what a model wrote about a published document (ADR 0054)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final
from uuid import UUID

from latent_core.bm25.analyser import analyse
from latent_core.bm25.summary_terms import of_summary
from latent_core.db import containers
from latent_core.db.connection import Connection
from latent_core.db.containers import Container, Space
from latent_core.db.documents import documents, generated_chunks
from latent_core.db.documents.generated_chunks import GeneratedRow
from latent_core.domain.chunk import (
    FRONT_MATTER,
    BlockType,
    Chunk,
    DraftChunk,
    SourceType,
    keyword_fields,
)
from latent_core.domain.errors import LatentError, NotFound
from latent_core.domain.generated import GeneratedBy, GeneratedKind, generated_chunk_id, positions
from latent_core.domain.ids import JobId
from latent_core.ingest.delete import ChunkPoints
from latent_core.ingest.generated import (
    GeneratedScope,
    PurgeTerms,
    StagedTexts,
    append,
    intend,
)
from latent_core.ingest.publish import StagedChunk
from latent_core.ingest.stage import AddressedChunk, stage_vectors
from latent_core.models.embedding.picture import Piece
from latent_core.queue.context import JobContext
from latent_core.queue.finish import hold
from latent_core.runtime.failpoint import failpoint
from latent_workers.chunk.writing import drafts_of
from latent_workers.deps import Deps
from latent_workers.ingest.dual_write import dual_write_spaces, stage_dual_write
from latent_workers.ingest.prepare import embed_addressed
from latent_workers.parse.parsed import Cue, ParsedDocument, TextBlock

HANDLER: Final = "language model"
SIMPLE: Final = "simple"
PARAGRAPH_BREAK: Final = "\n\n"

Write = Callable[[Connection], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class GeneratedText:
    """One text as a model wrote it; it becomes one chunk, or more if it is longer than the embedder's window."""

    text: str
    page: int | None = None
    keywords: str = ""
    """Words that the keyword index also has for it."""
    headings: tuple[str, ...] = ()
    """What it belongs to, outermost first: the embedder reads them with it."""
    cues: tuple[Cue, ...] = ()
    """Of a recording: when the words from an offset on are said."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """Which rows stay, and which drafts are new, each with its position."""

    kept: frozenset[int]
    new: list[tuple[int, DraftChunk]]


async def append_generated(
    ctx: JobContext,
    deps: Deps,
    container: Container,
    doc_id: UUID,
    generation: int,
    kind: GeneratedKind,
    pages: Sequence[int] | None,
    texts: Sequence[GeneratedText],
    *,
    by: GeneratedBy,
    also: Write | None = None,
) -> bool:
    """Replace the generated chunks of this kind, of the document or of these pages, by ``texts``; durable on return.

    ``also`` writes rows in the same transaction; it may run twice. False, and nothing is written, if another generation
    is live or the document is deleted: the job ends then. Idempotent: equal texts are neither embedded nor written
    again. An exception ends the attempt; what was written before it is removed by a purge.
    """
    scope = GeneratedScope(
        container.id, doc_id, generation, kind, None if pages is None else tuple(pages)
    )
    async with deps.stack.db.reading() as conn:
        row = await documents.row(conn, doc_id)
        present = await generated_chunks.of_document(conn, doc_id, kind, scope.pages)
    if row is None or row["deleted_at"] is not None or row["live_generation"] != generation:
        return False
    language = row["language"] or SIMPLE
    plan = await asyncio.to_thread(
        _planned, deps, container, scope, SourceType(row["source_type"]), texts, present
    )
    terms = PurgeTerms(ctx.job.principal, deps.settings.lease_seconds)
    staged = StagedTexts(scope, by, language, plan.kept, provenance=_provenance(container))
    if plan.new:
        staged = await _stage(ctx, deps, container, staged, plan, terms)

    async def write(conn: Connection) -> bool:
        await hold(conn, ctx.job)
        done = await append(conn, staged, terms)
        if done and also is not None:
            await also(conn)
        failpoint("generated.before_commit")
        return done

    await ctx.checkpoint()
    done = await ctx.transact(write)
    failpoint("generated.after_commit")
    return done


def _provenance(container: Container) -> dict[str, Any]:
    return {
        "handler": HANDLER,
        "handler_version": "1",
        "embedder": container.space.embedder,
        "embedder_version": container.space.lineage,
    }


def _planned(
    deps: Deps,
    container: Container,
    scope: GeneratedScope,
    source_type: SourceType,
    texts: Sequence[GeneratedText],
    present: Sequence[GeneratedRow],
) -> _Plan:
    """A page whose texts are all there already keeps its rows; of another one all are new. Blocking."""
    ordered = sorted(texts, key=lambda text: text.page or 0)
    kept: set[int] = set()
    new: list[tuple[int, DraftChunk]] = []
    for page, group in groupby(ordered, key=lambda text: text.page):
        if scope.pages is not None and page not in scope.pages:
            raise ValueError(f"a text of page {page} for pages {scope.pages}")
        drafts = [draft for one in group for draft in _drafts(deps, container, source_type, one)]
        rows = [row for row in present if row.page == page]
        if _identity(drafts) == [(row.content_hash, row.meta) for row in rows]:
            kept |= {row.chunk_no for row in rows}
        else:
            new += zip(positions(scope.kind, page, len(drafts)), drafts, strict=True)
    return _Plan(frozenset(kept), new)


def _identity(drafts: Sequence[DraftChunk]) -> list[tuple[str, dict[str, Any]]]:
    return [(draft.content_hash, draft.meta) for draft in drafts]


def _drafts(
    deps: Deps, container: Container, source_type: SourceType, one: GeneratedText
) -> Iterator[DraftChunk]:
    """The chunks of one text, cut as prose."""
    counter = deps.embedding.counter(container.space)
    window = deps.embedding.window(container.space)
    parsed = ParsedDocument(one.text, blocks=tuple(_paragraphs(one)), cues=one.cues)
    _, drafts = drafts_of(parsed, SourceType.TEXT, container.manifest.chunker, counter, window)
    for number, draft in enumerate(drafts):
        meta = draft.meta | ({FRONT_MATTER: one.keywords} if one.keywords and not number else {})
        place = replace(draft.place, page=one.page, page_end=one.page)
        yield replace(draft, place=place, source_type=source_type, meta=meta)


def _paragraphs(one: GeneratedText) -> Iterator[TextBlock]:
    start = 0
    for part in one.text.split(PARAGRAPH_BREAK):
        end = start + len(part)
        if part.strip():
            yield TextBlock(
                BlockType.PARAGRAPH, part, start, end, page=one.page, heading_path=one.headings
            )
        start = end + len(PARAGRAPH_BREAK)


async def _stage(
    ctx: JobContext,
    deps: Deps,
    container: Container,
    staged: StagedTexts,
    plan: _Plan,
    terms: PurgeTerms,
) -> StagedTexts:
    """Number, analyse and embed the new chunks, and store their vectors in every space of the container."""
    scope = staged.scope

    others = await dual_write_spaces(deps, container)
    drafts = [draft for _, draft in plan.new]
    parts, windows = await asyncio.to_thread(_cut, deps, container, others, drafts)

    async def number(conn: Connection) -> tuple[list[Chunk], JobId]:
        await hold(conn, ctx.job)
        first = await containers.take_chunk_nos(conn, container.id, len(plan.new))
        if first is None:
            raise NotFound(f"container '{container.id}' no longer exists")
        chunks = [
            Chunk(
                generated_chunk_id(scope.doc_id, scope.kind, draft.content_hash, chunk_no),
                position,
                chunk_no,
                draft,
            )
            for chunk_no, (position, draft) in enumerate(plan.new, first)
        ]
        points = [
            ChunkPoints(scope.doc_id, scope.generation, chunk.id, n)
            for chunk, n in zip(chunks, windows, strict=True)
        ]
        return chunks, await intend(conn, container.id, points, terms, ctx.job.id)

    await ctx.checkpoint()
    chunks, intent = await ctx.transact(number)  # commits before the first outside write
    failpoint("generated.after_intent")
    addressed = [
        AddressedChunk(scope.doc_id, scope.generation, chunk, len(part))
        for chunk, part in zip(chunks, parts, strict=True)
    ]
    addressed, vectors = await embed_addressed(ctx, deps, container, addressed, parts, _ignore)
    failpoint("generated.before_vectors")
    await stage_vectors(deps.stack.vectors, container.space, addressed, vectors, ctx.checkpoint)
    counts = [one.windows for one in addressed]
    written: dict[int, list[int]] = {container.space.collection_id: counts}
    written |= await stage_dual_write(ctx, deps, container, addressed)
    failpoint("generated.after_vectors")
    ready = await asyncio.to_thread(_analysed, addressed, scope.kind, staged.language)
    return replace(
        staged,
        chunks=ready,
        written=written,
        made_by=container.space.made_by,
        intent=intent,
    )


def _cut(
    deps: Deps, container: Container, others: Sequence[Space], drafts: Sequence[DraftChunk]
) -> tuple[list[list[Piece]], list[int]]:
    """The pieces of each draft in the live space, and the largest number of points that it has in any space: an
    embedder with a smaller window cuts it into more. Blocking."""
    parts = [deps.embedding.pieces(container.space, one.embed_text, None) for one in drafts]
    windows = [len(part) for part in parts]
    for space in others:
        with suppress(LatentError):  # its embedder is not available: nothing is written there
            lengths = [len(deps.embedding.pieces(space, one.embed_text, None)) for one in drafts]
            windows = list(map(max, windows, lengths))
    return parts, windows


def _analysed(
    addressed: Sequence[AddressedChunk], kind: GeneratedKind, language: str
) -> list[StagedChunk]:
    """With the terms of their texts; those of summaries are apart (ADR 0055). Blocking."""
    staged = []
    for one in addressed:
        draft = one.chunk.draft
        analysed = analyse(draft.text, language, keyword_fields(draft.meta))
        if kind is GeneratedKind.SUMMARY:
            analysed = of_summary(analysed)
        staged.append(StagedChunk.of(one.chunk, analysed, one.windows))
    return staged


async def _ignore(_done: int) -> None:
    """The caller reports its own steps."""
