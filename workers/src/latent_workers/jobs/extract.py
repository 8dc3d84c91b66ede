"""Extract: a language model describes the pages of a document, in batches; between two of them other jobs go first."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from latent_core.db.connection import Connection
from latent_core.db.containers import Container
from latent_core.db.documents import page_extractions, page_inputs
from latent_core.db.documents.page_extractions import ExtractionCounts
from latent_core.db.documents.page_inputs import PagedDocument
from latent_core.domain.errors import IngestFailed
from latent_core.ingest.delete import LEASES_TO_WAIT, enqueue_collection
from latent_core.ingest.extraction import ExtractPayload
from latent_core.models.llm.port import LanguageModel
from latent_core.queue.context import JobContext
from latent_core.queue.errors import LeaseLost
from latent_core.queue.finish import finish
from latent_core.queue.requeue import requeue_with
from latent_workers.deps import Deps
from latent_workers.extract.batch import PageBatch, maker_of
from latent_workers.extract.chunks import append_chunks
from latent_workers.extract.page_reader import GenerationReplaced, PageReader
from latent_workers.ingest.cleanup import cleanup_on_failure
from latent_workers.ingest.page_drawing import SECONDS_TO_DRAWING, is_drawing
from latent_workers.ingest.prepare import unless_archived

PAGES_PER_BATCH: Final = 16


async def extract(ctx: JobContext, deps: Deps) -> None:
    """One batch of pages."""
    container = await unless_archived(ctx, deps)
    if container is None:
        return
    async with cleanup_on_failure(ctx, deps):
        try:
            await _extract(ctx, deps, container)
        except GenerationReplaced:
            await _replaced(ctx, deps)


async def _extract(ctx: JobContext, deps: Deps, container: Container) -> None:
    payload = ExtractPayload.model_validate(ctx.job.payload)
    doc_id = ctx.job.doc_id
    if doc_id is None:
        raise IngestFailed(f"job {ctx.job.id} has no document")
    block = container.manifest.extraction
    if not block.enabled:
        return  # it was switched off meanwhile
    async with deps.stack.db.reading() as conn:
        document = await page_inputs.document(conn, doc_id)
    if document is None or document.generation != payload.generation:
        raise GenerationReplaced
    model = deps.stack.model_calls.model(block)
    blobs = await deps.stack.blobs_of(container.id)
    reader = PageReader(ctx, deps, doc_id, document, blobs, model)
    if (reader.needs_images or not document.pages) and await is_drawing(deps, doc_id):
        await _again(ctx, payload, delay_seconds=SECONDS_TO_DRAWING)
        return
    await _pages(ctx, deps, container, document, payload, reader, model, doc_id)


async def _pages(
    ctx: JobContext,
    deps: Deps,
    container: Container,
    document: PagedDocument,
    payload: ExtractPayload,
    reader: PageReader,
    model: LanguageModel,
    doc_id: UUID,
) -> None:
    chosen = sorted(set(document.pages) & set(payload.pages or document.pages))
    left = [page for page in chosen if page > payload.after]
    now, done = left[:PAGES_PER_BATCH], len(chosen) - len(left)
    batch = PageBatch(
        ctx,
        deps.stack.db,
        deps.stack.model_calls,
        container.id,
        doc_id,
        document.generation,
        container.manifest.extraction,
        reader,
        payload.force,
    )

    async def report(finished: int) -> None:
        await ctx.progress(done + finished, len(chosen), "pages")

    try:
        await batch.run(now, report)
    except LeaseLost:
        raise
    except Exception:
        # Finished pages are found although the job ends here, by its cancellation or by a limit.
        completing = ctx.despite_cancel()
        await append_chunks(completing, deps, container, doc_id, document.generation, now)
        raise
    if not await append_chunks(ctx, deps, container, doc_id, document.generation, now):
        raise GenerationReplaced
    if len(left) > len(now):
        await _again(ctx, payload.model_copy(update={"after": now[-1]}))
    else:
        await _finish(ctx, container, doc_id, model)


async def _again(ctx: JobContext, payload: ExtractPayload, *, delay_seconds: float = 0.0) -> None:
    async def write(conn: Connection) -> None:
        await requeue_with(
            conn, ctx.job, payload.model_dump(mode="json"), delay_seconds=delay_seconds
        )

    await ctx.transact(write)


async def _finish(
    ctx: JobContext, container: Container, doc_id: UUID, model: LanguageModel
) -> None:
    async def write(conn: Connection) -> None:
        made_by = maker_of(model.name)
        counts = await page_extractions.counts(conn, container.id, made_by, [doc_id])
        await finish(conn, ctx.job, result=_result(counts.get(doc_id)))

    await ctx.transact(write, last=True)


def _result(counts: ExtractionCounts | None) -> dict[str, Any] | None:
    """Of the whole document, as its status has it."""
    if counts is None:
        return None
    return {"pages": counts.total, "extracted": counts.done, "failed": counts.failed}


async def _replaced(ctx: JobContext, deps: Deps) -> None:
    """A newer generation has its own job. PDFs that were made for this one may be garbage."""

    async def write(conn: Connection) -> None:
        await finish(conn, ctx.job)
        await enqueue_collection(
            conn,
            principal=ctx.job.principal,
            delay_seconds=LEASES_TO_WAIT * deps.settings.lease_seconds,
        )

    await ctx.transact(write, last=True)
