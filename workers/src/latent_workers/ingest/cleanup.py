"""Cleans up after attempts that failed: orphaned points and blobs, which are invisible."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Final
from uuid import UUID

from latent_core.db import containers
from latent_core.db.containers import Container
from latent_core.db.documents.documents import Attempt
from latent_core.domain.errors import LatentError, NotFound, OutOfSpace, StoreFull, Unavailable
from latent_core.ingest.delete import LEASES_TO_WAIT, enqueue_collection, enqueue_purges
from latent_core.ingest.stage import Checkpoint
from latent_core.queue.context import JobContext
from latent_core.queue.errors import JobCancelled, LeaseLost
from latent_core.queue.requeue import is_final
from latent_workers.deps import Deps
from latent_workers.ingest.dual_write import dual_write_spaces

logger = logging.getLogger(__name__)


@asynccontextmanager
async def cleanup_on_failure(
    ctx: JobContext, deps: Deps, staged: Sequence[tuple[UUID, int]] = ()
) -> AsyncIterator[None]:
    """If the block ends the job without success, enqueue the purge of the ``staged`` generations and a check of
    blobs.

    The purge checks whether a generation has become live: a commit may have succeeded although its answer was lost.
    If another attempt follows, the cleanup is left to it; after a lost lease, to the new holder.
    """
    try:
        yield
    except LeaseLost:
        raise
    except Exception as error:
        if was_the_last(ctx, error):
            await _sweep(ctx, deps, staged)
        raise


def was_the_last(ctx: JobContext, error: Exception) -> bool:
    """Whether no other attempt follows after this error."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return isinstance(error, JobCancelled) or is_final(ctx.job, error)


@asynccontextmanager
async def private_folder() -> AsyncIterator[None]:
    """A temporary folder for large files such as archives. In this block, a full store costs an attempt.

    The files of such a job may be the reason why the store is full. If it waited for free space, it would keep them
    for ever; with its last attempt it releases them.
    """
    try:
        yield
    except StoreFull as exc:
        raise OutOfSpace(exc.message, **exc.details) from exc


MAX_EARLIER: Final = 16
"""Generations of a document that one attempt removes beside a live one. Its publication removes all others."""


async def remove_earlier_attempts(
    deps: Deps, container: Container, attempts: Collection[Attempt], checkpoint: Checkpoint
) -> None:
    """Delete the vectors that failed attempts at these documents wrote. Without this, every attempt during an outage
    would leave its own until one succeeds."""
    repeated = [one for one in attempts if one.first < one.generation]
    if not repeated:
        return
    spaces = [container.space, *await dual_write_spaces(deps, container)]
    for collection in dict.fromkeys(space.collection() for space in spaces):
        for one in repeated:
            await checkpoint()
            if one.live is None:
                await deps.stack.vectors.delete(collection, one.doc_id, below=one.generation)
                continue
            for earlier in range(max(one.first, one.generation - MAX_EARLIER), one.generation):
                await deps.stack.vectors.delete(collection, one.doc_id, only=earlier)


async def _sweep(ctx: JobContext, deps: Deps, staged: Sequence[tuple[UUID, int]]) -> None:
    lease = deps.settings.lease_seconds
    try:
        async with deps.stack.db.transaction() as conn:
            if await containers.hold(conn, ctx.job.container_id) is None:
                return  # its deletion removes everything
            if staged:
                await enqueue_purges(
                    conn,
                    ctx.job.container_id,
                    only=staged,
                    principal=ctx.job.principal,
                    lease_seconds=lease,
                )
            await enqueue_collection(
                conn, principal=ctx.job.principal, delay_seconds=LEASES_TO_WAIT * lease
            )
    except LatentError as error:  # the job's own error is what its owner must see
        logger.warning("job_cleanup_failed", extra={"job_id": ctx.job.id, "cause": str(error)})


@contextmanager
def requeued(as_: type[Unavailable] = Unavailable) -> Iterator[None]:
    """``NotFound`` of the live collection becomes ``as_``, which leads to another attempt."""
    try:
        yield
    except NotFound as exc:
        raise as_(f"{exc.message} just now; the job will try again later") from exc
