"""The worker's composition root: the dependencies of job handlers, and the runner."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from latent_core.db.spaces import spaces
from latent_core.db.spaces.embedding_claims import Claimant
from latent_core.domain.errors import Invalid
from latent_core.models.providers.registry import Providers
from latent_core.queue.runner import Runner, counting
from latent_core.readiness import Readiness
from latent_core.runtime.secret_files import forget_secrets, secrets_in
from latent_core.runtime.stop import stop_signals
from latent_core.runtime.tasks import ended
from latent_core.settings import Settings, warn_of_unknown_variables
from latent_core.stack import Stack
from latent_core.telemetry.metrics import Metrics, set_up_logs
from latent_core.telemetry.metrics_server import metrics_served
from latent_core.telemetry.tracing import tracing
from latent_workers.deps import Deps
from latent_workers.embed import DocumentEmbedding, picture_reader
from latent_workers.jobs.registry import ONE_AT_A_TIME, handlers
from latent_workers.maintenance import tidy
from latent_workers.ocr.reader import PageReader
from latent_workers.publishing import Publisher
from latent_workers.sandbox.budget import DRAWING
from latent_workers.sandbox.pool import Sandbox
from latent_workers.scheduler import keep_schedule

SEEN_SECONDS: Final = 10.0


async def keep_seen(readiness: Readiness, metrics: Metrics) -> None:
    """Record the time whenever the database answers: a worker that hangs or is disconnected does not. Until
    cancelled."""
    while True:
        states = await readiness.states()
        if states["postgres"] != "down":
            metrics.worker_seen.set_to_current_time()
        await asyncio.sleep(SEEN_SECONDS)


PARSERS = 2
"""Concurrent parser children: one per core."""
RENDERERS = 1
"""Separate children for drawing pages, so that text does not wait for images."""


@asynccontextmanager
async def working(settings: Settings, stack: Stack) -> AsyncIterator[Runner]:
    """A running worker on ``stack``; stops gracefully when the block ends."""
    reader = PageReader(settings.ocr, settings.ocr_languages)
    async with (
        Sandbox(children=PARSERS) as sandbox,
        Sandbox(children=RENDERERS, profile=DRAWING) as renderers,
        reader,
    ):
        worker_id = f"{socket.gethostname()}-{os.getpid()}"
        embedding = DocumentEmbedding(
            stack.embedders,
            stack.db,
            stack.metrics,
            picture_reader(stack),
            claimant=Claimant.of_worker(worker_id, settings.lease_seconds),
            price_of=stack.embedders.price_of,
        )
        async with stack.db.reading() as conn:
            for name in await spaces.embedders(conn):
                stack.metrics.start_embedder(name)
        publishing = Publisher(stack.db, lease_seconds=settings.lease_seconds)
        deps = Deps(settings, stack, sandbox, embedding, renderers, publishing, ocr=reader)
        runner = Runner(
            stack.db,
            handlers(deps),
            concurrency=settings.jobs_at_a_time,
            lease_seconds=settings.lease_seconds,
            poll_seconds=settings.poll_seconds,
            worker_id=worker_id,
            on_end=counting(stack.metrics),
            one_at_a_time=ONE_AT_A_TIME,
        )
        task = asyncio.create_task(runner.run(), name="worker")
        background = [
            asyncio.create_task(tidy(settings, stack), name="tidy"),
            asyncio.create_task(keep_schedule(settings, stack), name="schedule"),
            asyncio.create_task(keep_seen(stack.readiness, stack.metrics), name="seen"),
        ]
        try:
            yield runner
        finally:
            runner.stop()
            await ended(*background)
            await task
            await embedding.close()


async def run(settings: Settings) -> None:
    """A separate worker process on servers, until SIGINT or SIGTERM."""
    if settings.addresses_missing:
        missing = ", ".join(settings.addresses_missing)
        raise Invalid(
            f"a separate worker needs all three servers. Missing: {missing}. 'latent up' needs none of them"
        )
    own = [*secrets_in(settings), *Providers.of(settings).secrets()]
    set_up_logs(settings.log_format, own=own)
    warn_of_unknown_variables()
    forget_secrets(Settings)
    with stop_signals() as stop:
        async with (
            tracing(settings, "latent-worker"),
            Stack.open(settings, name="worker") as stack,
            working(settings, stack),
        ):
            requested = asyncio.Event()
            stop.gracefully(requested.set)
            with metrics_served(settings, stack.metrics, stack.readiness.answer):
                await requested.wait()
