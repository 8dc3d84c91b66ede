"""Drop what language models wrote, and write lost vectors of it again. Chunks of sources are not touched."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from latent_core.db.connection import Connection
from latent_core.db.containers import Container
from latent_core.db.documents import generated_chunks
from latent_core.db.documents.generated_chunks import GeneratedChunkText
from latent_core.domain.errors import IngestFailed
from latent_core.domain.ids import point_id
from latent_core.domain.vector_types import Matrix
from latent_core.ingest.delete import ChunkPoints, enqueue_point_purges
from latent_core.ingest.generated import DropPayload, DropResult, PurgeTerms, drop
from latent_core.ingest.stage import stage_points
from latent_core.models.embedding.picture import Piece
from latent_core.queue.context import JobContext
from latent_core.queue.finish import finish, hold
from latent_core.vectors.port import Points
from latent_workers.deps import Deps
from latent_workers.ingest.prepare import unless_archived

CHUNKS_PER_STEP: Final = 512


async def drop_generated(ctx: JobContext, deps: Deps) -> None:
    """In steps of some documents; a retry goes on with what is left."""
    if await unless_archived(ctx, deps) is None:
        return
    payload = DropPayload.model_validate(ctx.job.payload)
    terms = PurgeTerms(ctx.job.principal, deps.settings.lease_seconds)
    container_id = ctx.job.container_id
    documents = chunks = 0
    after: UUID | None = None

    async def step(conn: Connection) -> DropResult:
        await hold(conn, ctx.job)
        return await drop(conn, container_id, payload.group, payload.doc_ids, terms, after=after)

    while True:
        await ctx.checkpoint()
        dropped = await ctx.transact(step)
        documents += dropped.documents
        chunks += dropped.chunks
        if dropped.last is None:
            break
        after = dropped.last
        await ctx.progress(documents, None, "documents")
    result = {"documents": documents, "chunks": chunks}
    await ctx.transact(lambda conn: finish(conn, ctx.job, result=result), last=True)


async def embed_generated(ctx: JobContext, deps: Deps) -> None:
    """All generated chunks of the document, in the space that is searched."""
    container = await unless_archived(ctx, deps)
    if container is None:
        return
    if ctx.job.doc_id is None:
        raise IngestFailed(f"job {ctx.job.id} has no document")
    doc_id, after = ctx.job.doc_id, -1
    while True:
        async with deps.stack.db.reading() as conn:
            rows = await generated_chunks.texts(
                conn, doc_id, container.space.collection_id, after=after, limit=CHUNKS_PER_STEP
            )
        if not rows:
            break
        after = rows[-1].chunk_no
        await _embed(ctx, deps, container, doc_id, rows)
    await ctx.transact(lambda conn: finish(conn, ctx.job), last=True)


async def _embed(
    ctx: JobContext,
    deps: Deps,
    container: Container,
    doc_id: UUID,
    rows: Sequence[GeneratedChunkText],
) -> None:
    def cut() -> list[list[Piece]]:
        return [
            deps.embedding.pieces(container.space, row.embed_text, None)[: row.windows]
            for row in rows
        ]

    parts = await asyncio.to_thread(cut)
    vectors: Matrix = await deps.embedding.embed(
        container.space,
        [piece for part in parts for piece in part],
        ctx.checkpoint,
        _ignore,
        job_id=ctx.job.id,
    )
    owners = [
        (row, window) for row, part in zip(rows, parts, strict=True) for window in range(len(part))
    ]
    points = Points(
        ids=[point_id(row.id, row.generation, window) for row, window in owners],
        vectors=vectors,
        doc_ids=[doc_id] * len(owners),
        generations=[row.generation for row, _ in owners],
        chunk_nos=[row.chunk_no for row, _ in owners],
    )
    await stage_points(deps.stack.vectors, container.space, points, ctx.checkpoint)
    await ctx.transact(lambda conn: _purge_removed(conn, ctx, deps, doc_id, rows))


async def _purge_removed(
    conn: Connection, ctx: JobContext, deps: Deps, doc_id: UUID, rows: Sequence[GeneratedChunkText]
) -> None:
    """Purge the points of chunks that were replaced meanwhile."""
    await hold(conn, ctx.job)
    kept = await generated_chunks.existing(conn, ctx.job.container_id, [row.id for row in rows])
    removed = [
        ChunkPoints(doc_id, row.generation, row.id, row.windows)
        for row in rows
        if row.id not in kept
    ]
    if removed:
        await enqueue_point_purges(
            conn,
            ctx.job.container_id,
            removed,
            principal=ctx.job.principal,
            lease_seconds=deps.settings.lease_seconds,
        )


async def _ignore(_done: int) -> None:
    """A repair has no progress to report."""
