"""Page PDF: one page of a PDF as its own file, created on request."""

from __future__ import annotations

from pathlib import PurePosixPath
from uuid import UUID

from latent_core.blobs.writer import store
from latent_core.db.connection import Connection
from latent_core.db.documents import pages
from latent_core.db.documents.pages import PagePdfFile
from latent_core.domain.errors import IngestFailed
from latent_core.domain.ids import Sha256
from latent_core.ingest.delete import LEASES_TO_WAIT, enqueue_collection
from latent_core.ingest.processing import PDF, PagePdfPayload
from latent_core.queue.context import JobContext
from latent_core.queue.finish import finish, hold
from latent_workers.deps import Deps
from latent_workers.ingest.cleanup import cleanup_on_failure
from latent_workers.render.run import page_pdf as taken_out


async def page_pdf(ctx: JobContext, deps: Deps) -> None:
    """Extract the page, store it and note it, if its generation is still live."""
    async with cleanup_on_failure(ctx, deps):
        await _page_pdf(ctx, deps)


async def _page_pdf(ctx: JobContext, deps: Deps) -> None:
    payload = PagePdfPayload.model_validate(ctx.job.payload)
    if ctx.job.doc_id is None:
        raise IngestFailed(f"job {ctx.job.id} has no document")
    doc_id = ctx.job.doc_id
    async with deps.stack.db.transaction() as conn:
        is_requested = await pages.is_pdf_requested(conn, doc_id, payload.generation, payload.page)
    if not is_requested:
        return  # it is there already, or something newer is
    blobs = await deps.stack.blobs_of(ctx.job.container_id)
    path = await blobs.local_copy(Sha256(payload.sha256))
    try:
        data = await taken_out(deps.sandbox, path, name=payload.filename, number=payload.page)
    except IngestFailed as exc:
        if exc.details.get("reason") != "encrypted":
            raise
        raise IngestFailed(
            f"'{payload.filename}' is stored encrypted and its password is not kept: it has no single-page PDFs",
            reason="encrypted",
        ) from exc
    await ctx.checkpoint()
    sha256 = await store(deps.stack.db, blobs, data)
    await _note(ctx, deps, doc_id, payload, sha256)


async def _note(
    ctx: JobContext, deps: Deps, doc_id: UUID, payload: PagePdfPayload, sha256: Sha256
) -> None:
    """Refer to the bytes; they are garbage if the generation is no longer live."""

    async def write(conn: Connection) -> None:
        await hold(conn, ctx.job)
        live = await pages.is_live(conn, doc_id, payload.generation)
        if live:
            made = PagePdfFile(sha256, PDF, _filename(payload))
            await pages.note_pdf(conn, doc_id, payload.generation, payload.page, made)
        await finish(conn, ctx.job)
        if not live or ctx.job.attempts > 1:
            await enqueue_collection(
                conn,
                principal=ctx.job.principal,
                delay_seconds=LEASES_TO_WAIT * deps.settings.lease_seconds,
            )

    await ctx.transact(write)


def _filename(payload: PagePdfPayload) -> str:
    return f"{PurePosixPath(payload.filename).stem}-{payload.page:04d}.pdf"
