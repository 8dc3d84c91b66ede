"""An attempt that loses its job at any step, and goes on afterwards: what is live is live once, and nothing stays behind.

Two workers on one Postgres, one vector engine and the real handlers. The first believes to hold its job
all the while (its lease is long, its heart does not beat in time), as a process does that was frozen.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar, cast
from uuid import UUID

import orjson
import pytest

from latent_core.blobs.writer import store
from latent_core.db.connection import Connection, Database
from latent_core.db.documents import documents
from latent_core.db.documents.documents import SourceInfo
from latent_core.doctor.examine import Doctor
from latent_core.domain.findings import DoctorReport
from latent_core.domain.job import JobKind
from latent_core.domain.manifest.model import Chunker, Manifest
from latent_core.ingest import containers as founding
from latent_core.ingest.accept import IngestPayload, accept
from latent_core.ingest.delete import delete_container, delete_documents
from latent_core.models.embedding.resolve import EmbedderRegistry
from latent_core.queue import admin
from latent_core.queue.context import JobContext
from latent_core.queue.reaper import disown, reap
from latent_core.queue.runner import Runner
from latent_core.settings import Settings
from latent_core.stack import Stack
from latent_core.vectors.edge.index import EdgeVectorIndex
from latent_core.vectors.port import Points, VectorIndex
from latent_workers.deps import Deps
from latent_workers.embed import DocumentEmbedding, picture_reader
from latent_workers.jobs.registry import handlers
from latent_workers.maintenance import look
from latent_workers.publishing import Publisher
from latent_workers.sandbox.pool import Sandbox
from tests.support.harness.worker_harness import embedded_stack
from tests.support.servers.embedding_server import EmbeddingServer

DIMS: Final = 16
LEASE_SECONDS: Final = 600.0
"""No heart beats in the time of a test."""
WAIT_SECONDS: Final = 60.0
CONTAINER: Final = "notes"
LAST_STEP: Final = "before the transaction"

TIME_PASSES: Final = "UPDATE jobs SET run_at = now() WHERE state = 'queued'"
OPEN_JOBS: Final = (
    "SELECT count(*) AS n FROM jobs WHERE state IN ('queued', 'running') AND kind = ANY(%(kinds)s)"
)
JOB_OF: Final = (
    "SELECT id FROM jobs WHERE doc_id = %(id)s AND kind = 'ingest' ORDER BY id DESC LIMIT 1"
)
LIVE_TEXTS: Final = """
SELECT c.text FROM chunks c JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE d.id = %(id)s
"""
JOBS: Final = "SELECT kind, state FROM jobs WHERE kind <> 'garbage'"
AFTERWARDS: Final = (JobKind.PURGE, JobKind.COMPACT)

T = TypeVar("T")


class Steps:
    """The places of an attempt where it could be frozen, and the one where it is."""

    def __init__(self, pause_at: int | None = None, *, stop_before: str | None = None) -> None:
        self.taken: list[str] = []
        self.reached = asyncio.Event()
        self.go = asyncio.Event()
        self._pause_at = pause_at
        self._stop_before = stop_before

    async def at(self, name: str) -> None:
        self.taken.append(name)
        if len(self.taken) - 1 == self._pause_at or name == self._stop_before:
            self.reached.set()
            async with asyncio.timeout(WAIT_SECONDS):
                await self.go.wait()


class SteppedContext:
    """A job's context; each question to it is a step."""

    def __init__(self, ctx: JobContext, steps: Steps) -> None:
        self._ctx = ctx
        self._steps = steps
        self.job = ctx.job

    async def checkpoint(self) -> None:
        await self._steps.at("checkpoint")
        await self._ctx.checkpoint()

    async def fence(self, done: int | None = None) -> None:
        await self._steps.at("fence")
        await self._ctx.fence(done)

    async def fence_patiently(self, done: int | None = None) -> None:
        await self._steps.at("fence")
        await self._ctx.fence_patiently(done)

    async def progress(self, done: int, total: int | None, note: str | None = None) -> None:
        await self._steps.at("progress")
        await self._ctx.progress(done, total, note)

    async def warn(self, issue: Any) -> None:
        await self._steps.at("warn")
        await self._ctx.warn(issue)

    async def transact(
        self, write: Callable[[Connection], Awaitable[T]], *, last: bool = False
    ) -> T:
        await self._steps.at("before the transaction")
        result = await self._ctx.transact(write, last=last)
        await self._steps.at("after the transaction")
        return result


class SteppedDatabase:
    """Where documents are published; each transaction is a step before and a step after."""

    def __init__(self, db: Database, steps: Steps) -> None:
        self._db = db
        self._steps = steps

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        await self._steps.at("before the transaction")
        async with self._db.transaction() as conn:
            yield conn
        await self._steps.at("after the transaction")


class SteppedIndex:
    """A vector index; each write is a step before and a step after."""

    def __init__(self, index: VectorIndex, steps: Steps) -> None:
        self._index = index
        self._steps = steps

    def __getattr__(self, name: str) -> Any:
        return getattr(self._index, name)

    async def upsert(self, collection: str, points: Points) -> None:
        await self._steps.at("before vectors")
        await self._index.upsert(collection, points)
        await self._steps.at("after vectors")

    async def delete(self, collection: str, doc_id: UUID, **which: Any) -> int:
        await self._steps.at("before a deletion")
        return await self._index.delete(collection, doc_id, **which)


@dataclass
class AttemptHarness:
    """The stores, and workers on them."""

    stack: Stack
    sandbox: Sandbox
    runners: list[Runner] = field(default_factory=list)

    @asynccontextmanager
    async def worker(
        self, name: str, steps: Steps | None = None, kinds: Collection[JobKind] = tuple(JobKind)
    ) -> AsyncIterator[Runner]:
        """A worker at work on jobs of these kinds. With ``steps`` it stops at one of them."""
        stack = self.stack
        if steps is not None:
            stack = replace(stack, vectors=cast(VectorIndex, SteppedIndex(stack.vectors, steps)))
        embedding = DocumentEmbedding(
            stack.embedders, stack.db, stack.metrics, picture_reader(stack)
        )
        db = stack.db if steps is None else cast(Database, SteppedDatabase(stack.db, steps))
        publishing = Publisher(db, lease_seconds=stack.settings.lease_seconds)
        deps = Deps(stack.settings, stack, self.sandbox, embedding, self.sandbox, publishing)
        bound = handlers(deps)
        runner = Runner(
            stack.db,
            {kind: _stepped(bound[kind], steps) for kind in kinds},
            worker_id=name,
            concurrency=1,
            lease_seconds=LEASE_SECONDS,
            poll_seconds=0.05,
        )
        task = asyncio.create_task(runner.run(stop_seconds=WAIT_SECONDS))
        try:
            yield runner
        finally:
            runner.stop()
            await task
            await embedding.close()

    async def add(self, uri: str, data: bytes, kind: JobKind = JobKind.INGEST) -> UUID:
        sha256 = await store(self.stack.db, self.stack.blobs.own, data)
        name = uri.rpartition("/")[2]
        source = SourceInfo(CONTAINER, uri, "text/plain")
        payload = IngestPayload(
            uri=uri,
            filename=name,
            mime="text/plain",
            sha256=sha256,
            accepted_at=datetime.now(UTC),
        )
        async with self.stack.db.transaction() as conn:
            accepted = await accept(conn, source, payload, kind=kind, principal="local:you")
        return accepted.doc_id

    async def take_claim(self, worker: str) -> None:
        """The worker's lease runs out, and the reaper comes."""
        await disown(self.stack.db, worker)
        assert await reap(self.stack.db)

    async def idle(self, kinds: Collection[JobKind]) -> None:
        """No job of these kinds is open, also of those that were to wait."""

        async def none_open() -> bool:
            async with self.stack.db.transaction() as conn:
                await conn.execute(TIME_PASSES)
                row = await (await conn.execute(OPEN_JOBS, {"kinds": list(kinds)})).fetchone()
            return row is not None and row["n"] == 0

        await eventually(none_open)

    async def live(self, doc_id: UUID) -> int | None:
        async with self.stack.db.transaction() as conn:
            row = await documents.row(conn, doc_id)
        return row["live_generation"] if row else None

    async def texts(self, doc_id: UUID) -> set[str]:
        """Of the document's live chunks."""
        async with self.stack.db.transaction() as conn:
            rows = await (await conn.execute(LIVE_TEXTS, {"id": doc_id})).fetchall()
        return {row["text"] for row in rows}

    async def delete(self, doc_id: UUID) -> None:
        async with self.stack.db.transaction() as conn:
            await delete_documents(
                conn, CONTAINER, [doc_id], principal="local:you", lease_seconds=LEASE_SECONDS
            )

    async def cancel(self, doc_id: UUID) -> None:
        """Ask for the end of the document's ingest."""
        async with self.stack.db.transaction() as conn:
            row = await (await conn.execute(JOB_OF, {"id": doc_id})).fetchone()
            assert row is not None
            await admin.cancel(conn, row["id"])

    async def examine(self) -> DoctorReport:
        stack = self.stack
        doctor = Doctor(stack.db, stack.vectors, stack.blobs, grace_seconds=4 * LEASE_SECONDS)
        return await doctor.examine(None)


def _stepped(
    handler: Callable[[JobContext], Awaitable[None]], steps: Steps | None
) -> Callable[[JobContext], Awaitable[None]]:
    if steps is None:
        return handler
    return lambda ctx: handler(cast(JobContext, SteppedContext(ctx, steps)))


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while not await condition():
        assert time.monotonic() < until, "it did not come about"
        await asyncio.sleep(0.02)


@pytest.fixture
async def harness(database: Database, tmp_path: Path) -> AsyncIterator[AttemptHarness]:
    async with AsyncExitStack() as services:
        server = await services.enter_async_context(EmbeddingServer(dims=DIMS))
        settings = Settings(
            data_dir=tmp_path,
            embed_base_url=server.base_url,
            embed_rate_limit_per_min=100_000_000,
            lease_seconds=LEASE_SECONDS,
        )
        (tmp_path / "tmp").mkdir()
        index = await EdgeVectorIndex.open(tmp_path / "vectors")
        services.push_async_callback(index.close)
        embedders = EmbedderRegistry(settings, tmp_path / "models")
        services.push_async_callback(embedders.close)
        stack = embedded_stack(settings, database, index, embedders)
        manifest = Manifest(
            id=CONTAINER,
            name="Notes",
            embedder="openai/test",
            dims=DIMS,
            chunker=Chunker(size=16, overlap=0.0),
        )
        await founding.create(
            database,
            index,
            stack.blobs,
            embedders,
            manifest,
            principal="local:you",
            request_id=None,
        )
        sandbox = await services.enter_async_context(Sandbox(children=2))
        yield AttemptHarness(stack, sandbox)


def long_text(seed: str) -> bytes:
    """More chunks than one write of vectors holds."""
    words = [hashlib.sha256(f"{seed} {n}".encode()).hexdigest()[:9] for n in range(530)]
    return "\n\n".join(
        f"The {w} of the harbour is lit by the keeper at dusk." for w in words
    ).encode()


def short_text(seed: str) -> bytes:
    """Few enough to be published together with others."""
    return f"The lamp of {seed} is lit.".encode()


def short_corpus(seed: str) -> bytes:
    records = ({"_id": f"{n}", "text": f"The {seed} {n} is lit."} for n in range(3))
    return b"\n".join(orjson.dumps(record) for record in records)


async def steps_of(harness: AttemptHarness, uri: str, data: bytes, kind: JobKind) -> list[str]:
    """The steps of an attempt that nothing disturbs."""
    steps = Steps()
    async with harness.worker("undisturbed", steps, [kind]):
        doc_id = await harness.add(uri, data, kind)
        await published(harness, doc_id)
    return steps.taken


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("kind", "name", "content"),
    [
        (JobKind.INGEST, "a.txt", long_text),
        (JobKind.INGEST, "b.txt", short_text),
        (JobKind.CORPUS, "a.jsonl", short_corpus),
    ],
)
async def test_frozen_at_any_step_it_changes_nothing_once_another_has_the_job(
    harness: AttemptHarness, kind: JobKind, name: str, content: Callable[[str], bytes]
) -> None:
    undisturbed = await steps_of(harness, f"file:///first/{name}", content("first"), kind)
    for number in first_and_last_of_each(undisturbed[: undisturbed.index(LAST_STEP) + 1]):
        where = f"step {number}, {undisturbed[number]}"
        uri = f"file:///{number}/{name}"
        steps = Steps(number)
        async with harness.worker("frozen", steps, [kind]) as frozen:
            doc_id = await harness.add(uri, content(uri), kind)
            async with asyncio.timeout(WAIT_SECONDS):
                await steps.reached.wait()
            await harness.take_claim("frozen")
            frozen.stop()
            async with harness.worker("other", kinds=[kind]):
                await published(harness, doc_id)
            live = await harness.live(doc_id)
            steps.go.set()
        assert (frozen.stats.lost, frozen.stats.settled) == (1, 0), where
        assert "after the transaction" not in steps.taken, where
        assert await harness.live(doc_id) == live, where
    await clean_in_the_end(harness)


def first_and_last_of_each(names: Sequence[str]) -> list[int]:
    """Places of the first and of the last of each name."""
    last = {name: number for number, name in enumerate(names)}
    first = {name: number for number, name in reversed(list(enumerate(names)))}
    return sorted({*first.values(), *last.values()})


async def clean_in_the_end(harness: AttemptHarness) -> None:
    """When what was left behind is found and purged, also what waits for two leases, the stores agree."""
    await look(harness.stack.settings, harness.stack)
    async with harness.worker("last", kinds=AFTERWARDS):
        await harness.idle(AFTERWARDS)
    report = await harness.examine()
    assert report.clean, report.model_dump()


async def published(harness: AttemptHarness, doc_id: UUID) -> None:
    async def is_live() -> bool:
        return await harness.live(doc_id) is not None

    await eventually(is_live)


@asynccontextmanager
async def frozen_with_vectors(harness: AttemptHarness, uri: str) -> AsyncIterator[UUID]:
    """An ingest that has stored its vectors and stands still before it publishes; let go in the end."""
    steps = Steps(stop_before=LAST_STEP)
    async with harness.worker("frozen", steps, [JobKind.INGEST]):
        doc_id = await harness.add(uri, b"The lamp of the harbour is lit.")
        async with asyncio.timeout(WAIT_SECONDS):
            await steps.reached.wait()
        try:
            yield doc_id
        finally:
            steps.go.set()


async def test_deleted_while_it_was_frozen_a_document_stays_deleted(
    harness: AttemptHarness,
) -> None:
    async with frozen_with_vectors(harness, "file:///a.txt") as doc_id:
        await harness.delete(doc_id)
    assert await harness.live(doc_id) is None
    await clean_in_the_end(harness)


async def test_what_was_added_while_it_was_frozen_wins(harness: AttemptHarness) -> None:
    async with frozen_with_vectors(harness, "file:///a.txt"):
        await harness.take_claim("frozen")
        doc_id = await harness.add("file:///a.txt", b"The lamp of the harbour is out.")
        async with harness.worker("other", kinds=[JobKind.INGEST]):
            await published(harness, doc_id)
    assert await harness.texts(doc_id) == {"The lamp of the harbour is out."}
    await clean_in_the_end(harness)


async def test_a_job_that_is_cancelled_in_the_midst_leaves_nothing_behind(
    harness: AttemptHarness,
) -> None:
    async with frozen_with_vectors(harness, "file:///a.txt") as doc_id:
        await harness.cancel(doc_id)
    assert await harness.live(doc_id) is None
    await clean_in_the_end(harness)


async def test_a_job_that_is_cancelled_after_its_worker_vanished_leaves_nothing_behind(
    harness: AttemptHarness,
) -> None:
    async with frozen_with_vectors(harness, "file:///a.txt") as doc_id:
        await harness.take_claim("frozen")
        await harness.cancel(doc_id)
    assert await harness.live(doc_id) is None
    await clean_in_the_end(harness)


async def test_a_container_that_is_deleted_in_the_midst_leaves_no_job_behind(
    harness: AttemptHarness,
) -> None:
    async with (
        frozen_with_vectors(harness, "file:///a.txt"),
        harness.stack.db.transaction() as conn,
    ):
        await delete_container(conn, CONTAINER, principal="local:you")
    async with harness.worker("other", kinds=[JobKind.DELETE_CONTAINER]):
        await harness.idle([JobKind.DELETE_CONTAINER])
    async with harness.stack.db.transaction() as conn:
        rows = await (await conn.execute(JOBS)).fetchall()
    assert [(row["kind"], row["state"]) for row in rows] == [("delete_container", "done")]
    assert await harness.stack.vectors.collections() == []
