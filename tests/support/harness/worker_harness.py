"""The stores and a worker that does one job when it is told: for tests of what jobs leave behind."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast
from uuid import UUID

import orjson

from latent_core.backends import ProcessFolders, SharedServices
from latent_core.blobs.files import FileBlobStore, FileBlobStores
from latent_core.blobs.port import BlobStores
from latent_core.blobs.signing import Signer
from latent_core.blobs.writer import store
from latent_core.bm25.bm25 import PostgresKeywordIndex
from latent_core.db.capacity import CapacityGuard
from latent_core.db.connection import Database
from latent_core.db.documents.documents import SourceInfo
from latent_core.doctor.examine import Doctor
from latent_core.domain.errors import LatentError
from latent_core.domain.findings import DoctorReport
from latent_core.domain.job import ClaimedJob, JobKind
from latent_core.domain.manifest.model import Manifest
from latent_core.domain.vector_types import Matrix, Vector
from latent_core.ingest import containers as founding
from latent_core.ingest.accept import IngestPayload, accept
from latent_core.ingest.password_seal import PasswordSeal
from latent_core.models.embedding.port import EmbeddingModel, TextsOnly
from latent_core.models.embedding.rate import TextRate
from latent_core.models.embedding.resolve import EmbedderRegistry
from latent_core.models.llm.calls import ModelCalls
from latent_core.models.llm.resolve import LanguageModels
from latent_core.models.providers.registry import Providers
from latent_core.queue import clock
from latent_core.queue.claim import claim
from latent_core.queue.context import JobContext
from latent_core.queue.finish import FINISH, fenced, stored_list
from latent_core.queue.lease import HeldClaim
from latent_core.queue.requeue import retry_or_fail
from latent_core.queue.wakeup import Wakeup
from latent_core.readiness import Readiness
from latent_core.search.cosine_scales import CosineScales
from latent_core.settings import Settings
from latent_core.stack import Stack
from latent_core.telemetry.metrics import Metrics
from latent_core.vectors.edge.index import EdgeVectorIndex
from latent_core.vectors.port import VectorIndex
from latent_workers.deps import Deps
from latent_workers.embed import DocumentEmbedding, picture_reader
from latent_workers.jobs.registry import handlers
from latent_workers.publishing import Publisher
from tests.support.harness.shared_sandbox import shared_sandbox
from tests.support.hashed_embedder import HashedWords
from tests.support.queue import sql
from tests.support.stand_in_models import StandInModels

DIMS: Final = 16
CONTAINER: Final = "notes"
LEASE_SECONDS: Final = 60.0

TIME_PASSES: Final = """
WITH due AS (UPDATE jobs SET run_at = now(), waits_for = NULL WHERE state = 'queued'),
     old AS (UPDATE uploads SET created_at = created_at - interval '10 minutes')
UPDATE blobs SET touched_at = touched_at - interval '10 minutes'
"""
LIVE_TEXTS: Final = """
SELECT c.text FROM chunks c JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE d.deleted_at IS NULL ORDER BY c.chunk_no
"""


class WordTokenizer:
    """Tokens are words."""

    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(self.offsets(text)) for text in texts]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        return [match.span() for match in re.finditer(r"\w+", text)]


@dataclass
class CountingEmbedder(TextsOnly, StandInModels):
    """Counts what it embeds; may be away."""

    texts: int = 0
    failure: Exception | None = None
    model: EmbeddingModel = field(
        default_factory=lambda: EmbeddingModel("openai/test", "1", DIMS, 128)
    )
    tokenizer: WordTokenizer = field(default_factory=WordTokenizer)
    words: HashedWords = field(default_factory=lambda: HashedWords(DIMS))

    def for_space(self, space: object) -> CountingEmbedder:
        return self

    def model_of(self, manifest: Manifest) -> EmbeddingModel:
        return self.model

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        if self.failure is not None:
            raise self.failure
        self.texts += len(texts)
        return self.words.vectors(texts)

    async def embed_query(self, text: str) -> Vector:
        row: Vector = self.words.vectors([text])[0]
        return row

    async def close(self) -> None:
        """Nothing is open."""


async def run_job(deps: Deps, job: ClaimedJob) -> LatentError | None:
    """Do a job as the runner would; answers what went wrong."""
    db = deps.stack.db
    held = HeldClaim(job, lease_seconds=LEASE_SECONDS, since=clock.now())
    try:
        await handlers(deps)[job.kind](JobContext(db, held))
    except LatentError as error:
        await retry_or_fail(db, job, error)
        return error
    async with db.transaction() as conn:
        await fenced(conn, FINISH, job, warnings=stored_list(()), result=None)
    return None


@dataclass
class WorkerHarness:
    """The stores, and a worker that does one job when it is told."""

    deps: Deps
    embedder: CountingEmbedder
    inbox: Path

    @property
    def stack(self) -> Stack:
        return self.deps.stack

    async def add(
        self,
        name: str,
        data: bytes | None,
        *,
        kind: JobKind = JobKind.INGEST,
        meta: dict[str, Any] | None = None,
        mime: str = "text/plain",
        container: str = CONTAINER,
        password: str | None = None,
    ) -> UUID:
        """Accept bytes, or with None the file of that name in the inbox."""
        sha256 = (
            await store(self.stack.db, await self.stack.blobs_of(container), data)
            if data is not None
            else None
        )
        payload = IngestPayload(
            uri=f"file:///{name}",
            filename=name,
            mime=mime,
            sha256=sha256,
            path=None if data is not None else str(self.inbox / name),
            accepted_at=datetime.now(UTC),
            meta=meta or {},
            sealed_password=password and self.stack.password_seal.seal(password),
        )
        source = SourceInfo(container, payload.uri, payload.mime)
        async with self.stack.db.transaction() as conn:
            accepted = await accept(conn, source, payload, kind=kind, principal="local:you")
        return accepted.doc_id

    async def add_corpus(self, records: dict[str, str], **more: Any) -> UUID:
        lines = [
            orjson.dumps({"_id": name, "title": "", "text": text}) for name, text in records.items()
        ]
        return await self.add("c.jsonl", b"\n".join(lines), kind=JobKind.CORPUS, **more)

    async def claim(self, *kinds: JobKind) -> ClaimedJob | None:
        return await claim(
            self.stack.db,
            worker="w",
            lease_seconds=LEASE_SECONDS,
            kinds=kinds or tuple(set(JobKind) - {JobKind.GARBAGE}),
        )

    async def run(self, job: ClaimedJob) -> Exception | None:
        return await run_job(self.deps, job)

    async def work(self, *kinds: JobKind) -> list[Exception]:
        """Do all that is due, of these kinds or of all but garbage."""
        troubles = []
        while (job := await self.claim(*kinds)) is not None:
            if (trouble := await self.run(job)) is not None:
                troubles.append(trouble)
        return troubles

    async def settle(self) -> None:
        """Everything that is to be done, by and by: purges of now and of later, then the garbage."""
        await self.work()
        await sql(self.stack.db, TIME_PASSES)
        await self.work()
        await sql(self.stack.db, TIME_PASSES)
        while (job := await self.claim(JobKind.GARBAGE)) is not None:
            assert await self.run(job) is None

    async def texts(self) -> list[str]:
        return [row["text"] for row in await sql(self.stack.db, LIVE_TEXTS)]

    async def stored(self) -> set[str]:
        return {sha256 async for sha256 in self.stack.blobs.own.hashes()}

    async def examine(self, *, deep: bool = False) -> DoctorReport:
        stack = self.stack
        doctor = Doctor(stack.db, stack.vectors, stack.blobs, grace_seconds=0.0, deep=deep)
        return await doctor.examine(None)


@asynccontextmanager
async def open_harness(
    database: Database, tmp_path: Path, blobs: BlobStores | None = None
) -> AsyncIterator[WorkerHarness]:
    """Stores in ``tmp_path`` with a container that is empty. ``blobs``: instead of files."""
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    settings = Settings(
        data_dir=tmp_path,
        ingest_roots=(inbox,),
        lease_seconds=LEASE_SECONDS,
        max_upload_bytes=1_000_000,
    )
    embedder = CountingEmbedder()
    manifest = Manifest(id=CONTAINER, name="Notes", embedder="openai/test", dims=DIMS)
    async with open_deps(database, settings, embedder, manifest, blobs=blobs) as deps:
        yield WorkerHarness(deps, embedder, inbox)


def embedded_stack(
    settings: Settings,
    database: Database,
    vectors: VectorIndex,
    embedder: Any,
    blobs: BlobStores | None = None,
) -> Stack:
    """A stack on ``database``; ``blobs`` are files in the data directory of ``settings`` unless given."""
    folder, tmp = settings.data_dir, settings.data_dir / "tmp"
    language_models = LanguageModels(Providers.of(settings), lambda _, n: TextRate(n))
    blobs, metrics = blobs or FileBlobStores(FileBlobStore(folder / "blobs", tmp)), Metrics()
    folders = ProcessFolders(folder, folder / "models", tmp, token="", token_place="", alone=True)
    return Stack(
        settings=settings,
        shared=SharedServices(folders, database.dsn, engine=None),
        db=database,
        keywords=PostgresKeywordIndex(database),
        vectors=vectors,
        blobs=blobs,
        signer=Signer(b"a key of the tests"),
        password_seal=PasswordSeal(b"a key of the tests"),
        embedders=cast(EmbedderRegistry, embedder),
        metrics=metrics,
        wakeup=Wakeup(database),
        readiness=Readiness(database, vectors, blobs.own, CapacityGuard(), metrics, writes=True),
        tmp=tmp,
        token="",
        token_place="",
        cosine_scales=CosineScales(vectors),
        language_models=language_models,
        model_calls=ModelCalls(database, language_models),
    )


@asynccontextmanager
async def open_deps(
    database: Database,
    settings: Settings,
    embedder: Any,
    manifest: Manifest,
    *,
    index: VectorIndex | None = None,
    blobs: BlobStores | None = None,
) -> AsyncIterator[Deps]:
    """What a worker works with, in the data directory of ``settings``, and a container of that manifest.

    ``embedder`` answers what ``EmbedderRegistry`` of a process is asked. ``index``: instead of the embedded engine.
    """
    folder, tmp = settings.data_dir, settings.data_dir / "tmp"
    tmp.mkdir()
    vectors = index if index is not None else await EdgeVectorIndex.open(folder / "vectors")
    stack = embedded_stack(settings, database, vectors, embedder, blobs)
    embedding = DocumentEmbedding(embedder, database, stack.metrics, picture_reader(stack))
    sandbox = shared_sandbox()
    try:
        await founding.create(
            database,
            vectors,
            stack.blobs,
            embedder,
            manifest,
            principal="local:you",
            request_id=None,
        )
        publishing = Publisher(database, lease_seconds=settings.lease_seconds)
        yield Deps(settings, stack, sandbox, embedding, sandbox, publishing)
    finally:
        await stack.language_models.close()
        await embedding.close()
        await vectors.close()
