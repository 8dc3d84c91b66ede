"""Make a generation: chunk, analyse, embed, and store the vectors where nothing sees them yet."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from latent_core.domain.chunk import DraftChunk, SourceType, number
from latent_core.domain.errors import NotFound, Unreachable
from latent_core.domain.languages import language_named
from latent_core.domain.manifest import Chunker
from latent_core.domain.recipe import recipe
from latent_core.embedding.picture import Piece
from latent_core.embedding.port import EmbeddingModel, Tokenizer
from latent_core.generations.accept import IngestPayload
from latent_core.generations.publish import StagedChunk
from latent_core.generations.stage import Addressed, stage_vectors
from latent_core.keywords.analyser import analyse
from latent_core.keywords.language import CODE, DEFAULT, SIMPLE, detect_language
from latent_core.processes.crash import crash_point
from latent_core.queue.context import JobContext
from latent_core.registry import containers
from latent_core.registry.containers import Container
from latent_core.registry.documents import Attempt, Live
from latent_core.registry.pages import PageRow
from latent_workers import versions
from latent_workers.chunk.drafting import drafts_of
from latent_workers.deps import Deps
from latent_workers.jobs import emptied
from latent_workers.jobs.beside import stage_beside
from latent_workers.jobs.drawing import Drawn
from latent_workers.jobs.unseen import kept_of, left_out_of, tell_left_out
from latent_workers.parse.charsets import charset_of
from latent_workers.parse.parsed import Parsed
from latent_workers.parse.registry import Detected

CHARS_FOR_LANGUAGE: Final = 20_000
Progress = Callable[[int, int], Awaitable[None]]
Store = Callable[[], Coroutine[Any, Any, None]]
"""Stores vectors that were made; durable on return, and the same when it is done again."""


@dataclass(frozen=True, slots=True)
class Made:
    """What a document became, before it has a place in its container."""

    parsed: Parsed
    """Without its text and blocks: the drafts say all, and a book would stand in memory twice."""
    drafts: list[DraftChunk]
    language: str
    drawn: Drawn | None = None
    """Its pages, when they were drawn to be embedded; else a job draws them once it is published."""

    def live(
        self,
        *,
        title: str,
        sha256: str,
        size: int,
        mime: str,
        fingerprint: str,
        meta: dict[str, Any],
        recipe: str,
        given_meta: str | None = None,
        validators: dict[str, Any] | None = None,
    ) -> Live:
        """The document's row; ``title`` is used when the source names none, ``meta`` is the whole."""
        return Live(
            title=self.parsed.title or title,
            source_type=self.drafts[0].source_type.value,
            sha256=sha256,
            bytes=size,
            language=self.language,
            fingerprint=fingerprint,
            chunks=len(self.drafts),
            mime=mime,
            meta=meta,
            recipe=recipe,
            given_meta=given_meta,
            validators=validators,
        )

    def page_rows(self) -> list[PageRow]:
        """Pages the source itself has; images that were not drawn yet follow."""
        drawn = {row.page: row for row in self.drawn.rows} if self.drawn is not None else {}
        own = [
            replace(drawn[p.number], text=p.text)
            if p.number in drawn
            else PageRow(page=p.number, text=p.text)
            for p in self.parsed.pages
        ]
        named = {row.page for row in own}
        return own + [row for page, row in drawn.items() if page not in named]

    def provenance(self, container: Container, source_type: SourceType) -> dict[str, Any]:
        """Lineage of every chunk (DESIGN §12.5)."""
        handler = f"{source_type.value} parser"
        if self.parsed.ocr is not None and self.parsed.ocr.pages:
            handler += f", {self.parsed.ocr.engine}"
        return {
            "handler": handler,
            "handler_version": versions.HANDLER,
            "embedder": container.space.embedder,
            "embedder_version": container.space.lineage,
        }


def recipe_of(container: Container) -> str:
    """What decides chunks beside their content, as listings compare it."""
    return recipe(container.manifest)


def fingerprint(
    container: Container,
    model: EmbeddingModel,
    sha256: str,
    detected: Detected,
    payload: IngestPayload,
) -> str:
    """Hash of everything that decides the chunks: the same means nothing is to be done. Their vectors are made
    anew by a refresh, not by adding the document again."""
    deciding: dict[str, Any] = {
        "content": sha256,
        "source_type": detected.source_type.value,
        "mime": detected.mime,
        "filename": payload.filename,
        "charset": charset_of(payload.mime),
        "meta": payload.meta,
        "recipe": recipe_of(container),
        "window": model.window,
    }
    if model.reads_images:
        deciding["pictures"] = sorted(container.manifest.modalities)
    return hashlib.sha256(orjson.dumps(deciding, option=orjson.OPT_SORT_KEYS)).hexdigest()


def fingerprint_of_scans(printed: str, engine: str) -> str:
    """``printed`` for a document with scanned pages: another OCR engine reads them anew."""
    return hashlib.sha256(f"{printed}\n{engine}".encode()).hexdigest()


WRITTEN_FOR_MACHINES: Final = (SourceType.CODE, SourceType.YAML, SourceType.JSON)
"""Their texts are code, however little of them looks like it."""


async def make(deps: Deps, container: Container, parsed: Parsed, source_type: SourceType) -> Made:
    """Chunk a parsed document, in a thread."""
    counter = deps.embedding.counter(container.space)
    window = deps.embedder(container.space).model.window
    return await asyncio.to_thread(
        _make, parsed, source_type, container.manifest.chunker, counter, window
    )


def _make(
    parsed: Parsed, source_type: SourceType, settings: Chunker, counter: Tokenizer, window: int
) -> Made:
    parsed, drafts = drafts_of(parsed, source_type, settings, counter, window)
    read = frozenset(parsed.ocr.pages if parsed.ocr is not None else ())
    marked = [
        replace(draft, meta={**draft.meta, "ocr": True}) if draft.place.page in read else draft
        for draft in drafts
    ]
    bare = replace(parsed, text="", blocks=())
    return Made(bare, marked, _language(parsed, source_type))


def _language(parsed: Parsed, source_type: SourceType) -> str:
    """What the text is written in; where too little of it tells, what the source says of itself."""
    detected = detect_language(parsed.text[:CHARS_FOR_LANGUAGE])
    if detected == DEFAULT and source_type in WRITTEN_FOR_MACHINES:
        return CODE
    if detected != SIMPLE or parsed.language is None:
        return detected
    with suppress(ValueError):
        return language_named(parsed.language)
    return detected


@dataclass(frozen=True, slots=True)
class Stored:
    """The chunks of one generation, and the collections that hold their vectors."""

    chunks: list[StagedChunk]
    written: dict[int, list[int]]
    """``Staged.written``"""
    left_out: bool = False
    """Whether pages of it have no vector of how they look."""


async def stage(
    ctx: JobContext,
    deps: Deps,
    container: Container,
    work: Sequence[tuple[Attempt, Made]],
    *,
    on_progress: Progress | None = None,
) -> list[Stored]:
    """Number, analyse and embed the chunks of generations and store their vectors, in every space of the
    container; in the order of ``work``."""
    stored, store = await embed(ctx, deps, container, work, on_progress=on_progress)
    await store()
    return stored


async def embed(
    ctx: JobContext,
    deps: Deps,
    container: Container,
    work: Sequence[tuple[Attempt, Made]],
    *,
    on_progress: Progress | None = None,
) -> tuple[list[Stored], Store]:
    """As ``stage``, but the vectors of the space that is searched are left to be stored: for small documents,
    several of which can be stored at once."""
    total = sum(len(made.drafts) for _, made in work)
    await ctx.checkpoint()
    async with deps.stack.db.single() as conn:  # commits before the first outside write
        first = await containers.take_ords(conn, container.id, total)
    if first is None:
        raise NotFound(f"container '{container.id}' does not exist any more")

    def cut(draft: DraftChunk) -> list[Piece]:
        return deps.embedding.pieces(container.space, draft.embed_text, draft.picture)

    staged, addressed, parts = await asyncio.to_thread(_prepare, work, first, cut)
    pieces = [piece for part in parts for piece in part]

    async def told(done: int) -> None:
        if on_progress is not None and pieces:
            await on_progress(total * done // len(pieces), total)

    crash_point("ingest.before_embedding")
    left_out = left_out_of(ctx)
    vectors = await deps.embedding.embed(
        container.space, pieces, ctx.checkpoint, told, job_id=ctx.job.id, left_out=left_out
    )
    left_out.check(others=sum(isinstance(piece, str) for piece in pieces))
    counts, vectors = kept_of(left_out, parts, vectors)
    addressed = [replace(one, windows=n) for one, n in zip(addressed, counts, strict=True)]
    await tell_left_out(ctx, left_out, addressed)

    async def store() -> None:
        crash_point("ingest.before_vectors")
        # No document is to blame for that; one whose container is deleted is cancelled.
        with emptied.comes_back(as_=Unreachable):
            await stage_vectors(
                deps.stack.vectors, container.space, addressed, vectors, ctx.checkpoint
            )
        crash_point("ingest.after_vectors")

    written: dict[int, list[int]] = {container.space.stored_in: counts}
    written |= await stage_beside(ctx, deps, container, addressed)
    return _apart(staged, written, container.space.stored_in), store


def _apart(
    staged: Sequence[list[StagedChunk]], written: Mapping[int, list[int]], searched: int
) -> list[Stored]:
    """What was counted over all generations, a generation each."""
    apart: list[Stored] = []
    start = 0
    for mine in staged:
        stop = start + len(mine)
        own = {one: counts[start:stop] for one, counts in written.items()}
        apart.append(Stored(mine, own, left_out=0 in own[searched]))
        start = stop
    return apart


def _prepare(
    work: Sequence[tuple[Attempt, Made]], first: int, cut: Callable[[DraftChunk], list[Piece]]
) -> tuple[list[list[StagedChunk]], list[Addressed], list[list[Piece]]]:
    staged: list[list[StagedChunk]] = []
    addressed: list[Addressed] = []
    pieces: list[list[Piece]] = []
    for attempt, made in work:
        chunks = number(attempt.doc_id, made.drafts, range(first, first + len(made.drafts)))
        first += len(made.drafts)
        mine = []
        for one in chunks:
            parts = cut(one.draft)
            pieces.append(parts)
            addressed.append(Addressed(attempt.doc_id, attempt.generation, one, len(parts)))
            mine.append(StagedChunk.of(one, analyse(one.draft.text, made.language), len(parts)))
        staged.append(mine)
    return staged, addressed, pieces
