"""Reparse: every stored original through the ingest job again, since parsers or the chunker's settings changed."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from latent_core.db.documents.documents import SourceInfo
from latent_core.db.spaces import refresh_sources, space_points
from latent_core.db.spaces.space_points import FIRST
from latent_core.domain.job import JobKind
from latent_core.domain.recipe import recipe
from latent_core.ingest.accept import CORPUS_MIME, accept, from_original
from latent_core.queue.finish import finish
from latent_workers.refresh.work import RefreshJob

DOCUMENTS_PER_STEP: Final = 100


async def reparse(work: RefreshJob) -> None:
    """Enqueue them all; what is live stays until its document's job is done.

    The place this has come to is kept after each turn. A turn that is repeated queues nothing twice: a job
    that waits for the same document takes the newer payload.
    """
    async with work.deps.stack.db.transaction() as conn:
        total, _ = await space_points.totals(conn, work.container.id)
    while rows := await _originals(work):
        for row in rows:
            await work.ctx.checkpoint()
            await _enqueue(work, row)
        done = work.payload.done + len(rows)
        work = await work.amended(after=str(rows[-1]["id"]), done=done)
        work.deps.stack.wake()
        await work.ctx.progress(done, max(total, done), "documents queued")
    result = {"documents_queued": work.payload.done}
    await work.ctx.transact(lambda conn: finish(conn, work.ctx.job, result=result))


async def _originals(work: RefreshJob) -> list[dict[str, Any]]:
    after = UUID(work.payload.after) if work.payload.after else FIRST
    async with work.deps.stack.db.transaction() as conn:
        return await refresh_sources.originals(
            conn, work.container.id, after=after, limit=DOCUMENTS_PER_STEP
        )


async def _enqueue(work: RefreshJob, row: dict[str, Any]) -> None:
    corpus = row["mime"] == CORPUS_MIME
    async with work.deps.stack.db.transaction() as conn:
        await accept(
            conn,
            SourceInfo(work.container.id, row["uri"], row["mime"]),
            from_original(row, recipe(work.container.manifest)),
            kind=JobKind.CORPUS if corpus else JobKind.INGEST,
            principal=work.ctx.job.principal,
        )
