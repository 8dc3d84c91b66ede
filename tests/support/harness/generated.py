"""Jobs that append what a model wrote, without a model: for tests of what that leaves in the stores."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, Protocol
from uuid import UUID

from latent_core.db import containers
from latent_core.db.connection import Connection
from latent_core.domain.generated import GeneratedBy, GeneratedKind
from latent_core.domain.job import JobKind, NewJob
from latent_core.queue import clock
from latent_core.queue.claim import claim
from latent_core.queue.context import JobContext
from latent_core.queue.enqueue import enqueue
from latent_core.queue.finish import finish
from latent_core.queue.lease import HeldClaim
from latent_core.stack import Stack
from latent_workers.deps import Deps
from latent_workers.ingest.generated import GeneratedText, append_generated
from tests.support.harness.worker_harness import CONTAINER, LEASE_SECONDS


class AppendHarness(Protocol):
    """Stores with the container ``CONTAINER``, and what a worker works with."""

    deps: Deps

    @property
    def stack(self) -> Stack: ...


NOW: Final = datetime(2026, 11, 24, tzinfo=UTC)


def by(kind: GeneratedKind, model: str = "lab/reader", prompt: str = "1") -> GeneratedBy:
    return GeneratedBy(kind=kind, model=model, prompt_version=prompt, created_at=NOW)


async def job_of(harness: AppendHarness, doc_id: UUID) -> JobContext:
    """A running job of any kind: what it appends does not depend on its kind."""
    async with harness.stack.db.transaction() as conn:
        await enqueue(conn, NewJob(JobKind.RENDER, CONTAINER, doc_id, priority=1000))
    job = await claim(
        harness.stack.db, worker="w", lease_seconds=LEASE_SECONDS, kinds=(JobKind.RENDER,)
    )
    assert job is not None
    held = HeldClaim(job, lease_seconds=LEASE_SECONDS, since=clock.now())
    return JobContext(harness.stack.db, held)


async def end(ctx: JobContext) -> None:
    async def write(conn: Connection) -> None:
        await finish(conn, ctx.job)

    await ctx.transact(write, last=True)


async def append_as(
    ctx: JobContext,
    harness: AppendHarness,
    doc_id: UUID,
    texts: Sequence[GeneratedText],
    *,
    kind: GeneratedKind = GeneratedKind.PAGE,
    pages: Sequence[int] | None = None,
    generation: int = 1,
    **more: Any,
) -> bool:
    async with harness.stack.db.reading() as conn:
        container = await containers.get(conn, CONTAINER)
    assert container is not None
    more.setdefault("by", by(kind))
    return await append_generated(
        ctx, harness.deps, container, doc_id, generation, kind, pages, texts, **more
    )


async def generate(
    harness: AppendHarness,
    doc_id: UUID,
    texts: Sequence[GeneratedText],
    **more: Any,
) -> bool:
    """By a job of its own, which ends."""
    ctx = await job_of(harness, doc_id)
    done = await append_as(ctx, harness, doc_id, texts, **more)
    await end(ctx)
    return done
