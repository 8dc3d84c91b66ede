"""Prepares a generation: chunk, analyse, embed, and store the vectors, which stay invisible."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from latent_core.bm25.analyser import analyse
from latent_core.bm25.language import detect_language, language_of_code
from latent_core.bm25.names import defined_names
from latent_core.db import containers
from latent_core.db.connection import Connection
from latent_core.db.containers import Container
from latent_core.db.documents.documents import Attempt, Authorship, LiveGeneration
from latent_core.db.documents.pages import PageRow
from latent_core.domain.chunk import BlockType, DraftChunk, SourceType, keyword_fields, number
from latent_core.domain.errors import Issue, IssueCode, NotFound, ServiceUnreachable
from latent_core.domain.generated import GeneratedBy
from latent_core.domain.manifest.model import Chunker
from latent_core.domain.text import language_named
from latent_core.domain.vector_types import Matrix
from latent_core.domain.versions import HANDLER, ending, recipe
from latent_core.ingest.accept import IngestPayload
from latent_core.ingest.password_seal import without_password
from latent_core.ingest.publish import StagedChunk
from latent_core.ingest.stage import AddressedChunk, stage_vectors
from latent_core.models.embedding.picture import Piece
from latent_core.models.embedding.port import EmbeddingModel, Tokenizer
from latent_core.queue.context import JobContext
from latent_core.queue.requeue import requeue_with
from latent_core.runtime.failpoint import failpoint
from latent_core.wire.containers import ContainerState
from latent_workers.chunk.writing import drafts_of
from latent_workers.deps import Deps
from latent_workers.ingest import cleanup
from latent_workers.ingest.dual_write import stage_dual_write
from latent_workers.ingest.page_drawing import DrawnPages
from latent_workers.ingest.refused_inputs import (
    kept_of,
    refused_inputs_of,
    warn_of_refused_texts,
    warn_of_skipped_images,
)
from latent_workers.parse.parsed import ParsedDocument
from latent_workers.parse.registry import DetectedType
from latent_workers.parse.web.charsets import charset_of

__all__ = ["HANDLER"]


CHARS_FOR_LANGUAGE: Final = 20_000
CHARS_PER_RECORD: Final = 500
"""Of a record of a corpus, to find out which languages the corpus has."""
MIN_PROSE_LETTERS: Final = 40
"""With fewer letters outside of code and tables, the whole text decides."""
NOT_PROSE: Final = (BlockType.CODE, BlockType.TABLE)
Progress = Callable[[int, int], Awaitable[None]]
Store = Callable[[], Coroutine[Any, Any, None]]
"""Stores prepared vectors. Durable on return, and idempotent."""


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    """A parsed and chunked document before it has a place in its container."""

    parsed: ParsedDocument
    """Without text and blocks: the drafts contain them, and a book would be in memory twice."""
    drafts: list[DraftChunk]
    language: str
    drawn: DrawnPages | None = None
    """Its pages, if they were drawn for the embedder; else a job draws them after publication."""
    generated: GeneratedBy | None = None
    """The model that wrote its texts: of a recording."""

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
        written: Authorship | None = None,
    ) -> LiveGeneration:
        """The document's row; ``title`` is the fallback, ``meta`` is complete."""
        return LiveGeneration(
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
            written=written,
        )

    def page_rows(self) -> list[PageRow]:
        """Pages of the source; images that are not drawn yet follow later."""
        drawn = {row.page: row for row in self.drawn.rows} if self.drawn is not None else {}
        words = self.parsed.ocr.words if self.parsed.ocr is not None else {}
        own = [
            replace(drawn[p.number], text=p.text, words=words.get(p.number))
            if p.number in drawn
            else PageRow(page=p.number, text=p.text, words=words.get(p.number))
            for p in self.parsed.pages
        ]
        named = {row.page for row in own}
        return own + [row for page, row in drawn.items() if page not in named]

    def provenance(self, container: Container, source_type: SourceType) -> dict[str, Any]:
        """Provenance of every chunk (DESIGN §12.5)."""
        handler = f"{source_type.value} parser"
        if self.parsed.ocr is not None and self.parsed.ocr.pages:
            handler += f", {self.parsed.ocr.engine}"
        return {
            "handler": handler,
            "handler_version": HANDLER,
            "embedder": container.space.embedder,
            "embedder_version": container.space.lineage,
        }


def recipe_of(container: Container, source_type: SourceType) -> str:
    """The settings that determine chunks besides the content, as listings compare them."""
    return recipe(container.manifest) + ending(source_type)


def fingerprint(
    container: Container,
    model: EmbeddingModel,
    sha256: str,
    detected: DetectedType,
    payload: IngestPayload,
) -> str:
    """Hash of everything that determines the chunks: if it is the same, there is nothing to do. It does not cover
    the embedder: a refresh creates new vectors."""
    deciding: dict[str, Any] = {
        "content": sha256,
        "source_type": detected.source_type.value,
        "mime": detected.mime,
        "filename": payload.filename,
        "charset": charset_of(payload.mime),
        "meta": payload.meta,
        "recipe": recipe_of(container, detected.source_type),
        "window": model.window,
    }
    if detected.source_type is SourceType.AUDIO:
        deciding["speech"] = container.manifest.speech.model_dump()
    if model.reads_images:
        deciding["pictures"] = sorted(container.manifest.modalities)
    return hashlib.sha256(orjson.dumps(deciding, option=orjson.OPT_SORT_KEYS)).hexdigest()


def fingerprint_of_scans(printed: str, engine: str) -> str:
    """``printed`` for a document with scanned pages: another OCR engine reads them again."""
    return hashlib.sha256(f"{printed}\n{engine}".encode()).hexdigest()


WRITTEN_FOR_MACHINES: Final = (SourceType.CODE, SourceType.YAML, SourceType.JSON)
"""Types whose text is code, even if little of it looks like code."""


async def languages_of(
    container: Container, records: Sequence[ParsedDocument]
) -> Mapping[str, int]:
    """The languages of a container together with those of records that are added to it: they decide about the short
    ones."""
    if not records:
        return container.chunks_by_language

    def count() -> Counter[str]:
        texts = (record.text[:CHARS_PER_RECORD] for record in records)
        return Counter(map(detect_language, texts)) + Counter(container.chunks_by_language)

    return await asyncio.to_thread(count)


async def make(
    deps: Deps,
    container: Container,
    parsed: ParsedDocument,
    source_type: SourceType,
    languages: Mapping[str, int] | None = None,
) -> PreparedDocument:
    """Chunk a parsed document, in a thread. ``languages``: of the texts around it, by default the container's."""
    window = (await deps.embedder(container.space)).model.window
    counter = deps.embedding.counter(container.space)
    known = container.chunks_by_language if languages is None else languages
    return await asyncio.to_thread(
        _make, parsed, source_type, container.manifest.chunker, counter, window, known
    )


def _make(
    parsed: ParsedDocument,
    source_type: SourceType,
    settings: Chunker,
    counter: Tokenizer,
    window: int,
    languages: Mapping[str, int],
) -> PreparedDocument:
    parsed, drafts = drafts_of(parsed, source_type, settings, counter, window)
    read = frozenset(parsed.ocr.pages if parsed.ocr is not None else ())
    marked = [
        replace(draft, meta={**draft.meta, "ocr": True}) if draft.place.page in read else draft
        for draft in drafts
    ]
    bare = replace(parsed, text="", blocks=())
    return PreparedDocument(bare, marked, language_of(parsed, source_type, languages))


def language_of(
    parsed: ParsedDocument, source_type: SourceType, languages: Mapping[str, int]
) -> str:
    """The language of a document. ``languages``: chunks by language of the texts around it."""
    text = parsed.text[:CHARS_FOR_LANGUAGE]
    if source_type in WRITTEN_FOR_MACHINES:
        return language_of_code(text)
    declared = None
    with suppress(ValueError):
        declared = language_named(parsed.language or "")
    return detect_language(text, languages, declared=declared, prose=_prose(parsed))


def _prose(parsed: ParsedDocument) -> str | None:
    """The text outside of code and tables, which have names and numbers of any language; None for too little of it."""
    parts = [
        block.text
        for block in parsed.blocks
        if block.offset_start < CHARS_FOR_LANGUAGE and block.kind not in NOT_PROSE
    ]
    prose = "\n".join(parts)[:CHARS_FOR_LANGUAGE]
    return prose if sum(map(str.isalpha, prose)) >= MIN_PROSE_LETTERS else None


@dataclass(frozen=True, slots=True)
class StoredGeneration:
    """The chunks of one generation, and the collections that hold their vectors."""

    chunks: list[StagedChunk]
    written: dict[int, list[int]]
    """``Staged.written``"""
    refused_inputs: bool = False
    """Whether pages of it have no vector of how they look."""


async def stage(
    ctx: JobContext,
    deps: Deps,
    container: Container,
    work: Sequence[tuple[Attempt, PreparedDocument]],
    *,
    on_progress: Progress | None = None,
) -> list[StoredGeneration]:
    """Number, analyse and embed the chunks of generations and store their vectors in every space of the container,
    in the order of ``work``."""
    stored, store = await embed(ctx, deps, container, work, on_progress=on_progress)
    await store()
    return stored


async def embed(
    ctx: JobContext,
    deps: Deps,
    container: Container,
    work: Sequence[tuple[Attempt, PreparedDocument]],
    *,
    on_progress: Progress | None = None,
) -> tuple[list[StoredGeneration], Store]:
    """As ``stage``, but the vectors of the live space are not stored yet: several small documents are stored
    together later."""
    total = sum(len(made.drafts) for _, made in work)
    await ctx.checkpoint()
    async with deps.stack.db.single() as conn:  # commits before the first outside write
        first = await containers.take_chunk_nos(conn, container.id, total)
    if first is None:
        raise NotFound(f"container '{container.id}' no longer exists")

    def cut(draft: DraftChunk) -> list[Piece]:
        return deps.embedding.pieces(container.space, draft.embed_text, draft.picture)

    staged, addressed, parts = await asyncio.to_thread(_prepare, work, first, cut)
    pieces = [piece for part in parts for piece in part]

    async def report_embedded(done: int) -> None:
        if on_progress is not None and pieces:
            await on_progress(total * done // len(pieces), total)

    addressed, vectors = await embed_addressed(
        ctx, deps, container, addressed, parts, report_embedded
    )
    counts = [one.windows for one in addressed]

    async def store() -> None:
        failpoint("ingest.before_vectors")
        # No document is to blame for that; one whose container is deleted is cancelled.
        with cleanup.requeued(as_=ServiceUnreachable):
            await stage_vectors(
                deps.stack.vectors, container.space, addressed, vectors, ctx.checkpoint
            )
        failpoint("ingest.after_vectors")

    written: dict[int, list[int]] = {container.space.collection_id: counts}
    written |= await stage_dual_write(ctx, deps, container, addressed)
    return _apart(staged, written, container.space.collection_id), store


async def embed_addressed(
    ctx: JobContext,
    deps: Deps,
    container: Container,
    addressed: Sequence[AddressedChunk],
    parts: Sequence[list[Piece]],
    on_progress: Callable[[int], Awaitable[None]],
) -> tuple[list[AddressedChunk], Matrix]:
    """The chunks with the number of their points in the live space, and the vectors; ``parts`` are their pieces. What
    the embedder refuses has no point, and a warning."""
    pieces = [piece for part in parts for piece in part]
    failpoint("ingest.before_embedding")
    refused_inputs = refused_inputs_of(ctx)
    vectors = await deps.embedding.embed(
        container.space,
        pieces,
        ctx.checkpoint,
        on_progress,
        job_id=ctx.job.id,
        refused_inputs=refused_inputs,
    )
    refused_inputs.check(others=sum(isinstance(piece, str) for piece in pieces))
    counts, vectors = kept_of(refused_inputs, parts, vectors)
    refused_inputs.check_texts(vectors=sum(counts))
    counted = [replace(one, windows=n) for one, n in zip(addressed, counts, strict=True)]
    await warn_of_skipped_images(ctx, refused_inputs, counted)
    await warn_of_refused_texts(ctx, refused_inputs, counted, parts)
    if (trouble := deps.embedding.new_trouble(container.space, ctx.job.id)) is not None:
        await ctx.warn(Issue(code=IssueCode.UNAVAILABLE, message=trouble))
    return counted, vectors


def _apart(
    staged: Sequence[list[StagedChunk]], written: Mapping[int, list[int]], searched: int
) -> list[StoredGeneration]:
    """Splits the counts over all generations into one per generation."""
    apart: list[StoredGeneration] = []
    start = 0
    for mine in staged:
        stop = start + len(mine)
        own = {one: counts[start:stop] for one, counts in written.items()}
        apart.append(StoredGeneration(mine, own, refused_inputs=0 in own[searched]))
        start = stop
    return apart


def _prepare(
    work: Sequence[tuple[Attempt, PreparedDocument]],
    first: int,
    cut: Callable[[DraftChunk], list[Piece]],
) -> tuple[list[list[StagedChunk]], list[AddressedChunk], list[list[Piece]]]:
    staged: list[list[StagedChunk]] = []
    addressed: list[AddressedChunk] = []
    pieces: list[list[Piece]] = []
    for attempt, made in work:
        chunks = number(attempt.doc_id, made.drafts, range(first, first + len(made.drafts)))
        first += len(made.drafts)
        mine = []
        for one in chunks:
            parts = cut(one.draft)
            pieces.append(parts)
            addressed.append(AddressedChunk(attempt.doc_id, attempt.generation, one, len(parts)))
            meta = one.draft.meta
            fields, names = keyword_fields(meta), defined_names(meta)
            analysed = analyse(one.draft.text, made.language, fields, names)
            mine.append(StagedChunk.of(one, analysed, len(parts)))
        staged.append(mine)
    return staged, addressed, pieces


SECONDS_BETWEEN_LOOKS: Final = 300.0


async def unless_archived(ctx: JobContext, deps: Deps) -> Container | None:
    """The job's container, or None if it is archived: then the job is requeued with all its attempts. ``NotFound``
    without the container."""
    async with deps.stack.db.reading() as conn:
        container = await containers.get(conn, ctx.job.container_id)
    if container is None:
        raise NotFound(f"container '{ctx.job.container_id}' no longer exists")
    if container.state is not ContainerState.ARCHIVED:
        return container

    async def write(conn: Connection) -> None:
        payload = without_password(ctx.job.payload)
        await requeue_with(conn, ctx.job, payload, delay_seconds=SECONDS_BETWEEN_LOOKS)

    await ctx.transact(write)
    return None
