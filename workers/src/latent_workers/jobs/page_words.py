"""Page words: the words of one page of a PDF with their boxes, read on request."""

from __future__ import annotations

from latent_core.db.connection import Connection
from latent_core.db.documents import page_words as rows
from latent_core.domain.errors import IngestFailed
from latent_core.domain.ids import Sha256
from latent_core.ingest.processing import PagePdfPayload
from latent_core.queue.context import JobContext
from latent_core.queue.finish import finish, hold
from latent_workers.deps import Deps
from latent_workers.parse.run import page_words as read_words


async def page_words(ctx: JobContext, deps: Deps) -> None:
    """Read the words and note them, if the generation is still live. A page without words is a result, too."""
    payload = PagePdfPayload.model_validate(ctx.job.payload)
    if ctx.job.doc_id is None:
        raise IngestFailed(f"job {ctx.job.id} has no document")
    doc_id = ctx.job.doc_id
    async with deps.stack.db.reading() as conn:
        requested = await rows.is_requested(conn, doc_id, payload.generation, payload.page)
    if not requested:
        return
    blobs = await deps.stack.blobs_of(ctx.job.container_id)
    path = await blobs.local_copy(Sha256(payload.sha256))
    try:
        words = await read_words(deps.sandbox, path, name=payload.filename, number=payload.page)
    except IngestFailed as exc:
        if exc.details.get("reason") != "encrypted":
            raise
        raise IngestFailed(
            f"'{payload.filename}' is stored encrypted and its password is not kept: its passages have no boxes",
            reason="encrypted",
        ) from exc

    async def write(conn: Connection) -> None:
        await hold(conn, ctx.job)
        await rows.note(conn, doc_id, payload.generation, payload.page, words)
        await finish(conn, ctx.job)

    await ctx.transact(write)
