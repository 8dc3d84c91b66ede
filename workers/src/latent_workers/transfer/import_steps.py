"""The steps of an import: each reads some batches, stores their vectors, and makes their documents live."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence, Set as AbstractSet
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final
from uuid import UUID

import orjson

from latent_core.blobs.writer import store_file
from latent_core.bm25 import postings
from latent_core.bm25.compaction import terms_after
from latent_core.bm25.packing import KeywordColumns, columns_of, joined_columns
from latent_core.db import golden
from latent_core.db.connection import Connection
from latent_core.db.spaces import space_points
from latent_core.db.transfer import archives, import_rows as rows
from latent_core.domain.errors import Conflict, Invalid, Issue, IssueCode, LatentError, OutOfSpace
from latent_core.domain.findings import RefusedInputs
from latent_core.domain.golden import GoldenSet, parse_golden
from latent_core.domain.ids import Sha256
from latent_core.domain.vector_types import Matrix
from latent_core.ingest.delete import LEASES_TO_WAIT, enqueue_collection, enqueue_purges
from latent_core.ingest.publish import enqueue_if_needed
from latent_core.ingest.stage import enqueue_dedup_pending
from latent_core.queue.context import JobContext
from latent_core.queue.finish import finish, hold
from latent_core.queue.lease import amend, payload_of
from latent_core.runtime.failpoint import failpoint
from latent_core.runtime.tasks import ended
from latent_core.transfer import import_commit, selection
from latent_core.transfer.batches import ArchiveBatch, BlobFile, read_batches
from latent_core.transfer.import_commit import CommittedStep
from latent_core.transfer.import_rows import Drafts, StepRows, draft_rows, write_rows
from latent_core.transfer.reader import MAX_SMALL, ArchiveReader
from latent_core.transfer.records import GOLDEN, ChunkRecord
from latent_core.transfer.requests import FRESH, ImportPayload
from latent_core.transfer.selection import ImportTarget, SelectedDocumentRows, Step, numbered
from latent_workers.deps import Deps
from latent_workers.ingest import cleanup
from latent_workers.ingest.refused_inputs import kept_of, refused_input_warnings, refused_inputs_of

logger = logging.getLogger(__name__)

CHUNKS_PER_STEP: Final = 5000
"""Nothing runs in parallel with the read of the first step and the commit of the last one."""
CHUNKS_INDEXED_TOGETHER: Final = 50_000
"""Of a new container: most terms are in few chunks, so that there are a fifth of the rows that steps would write.
About 70 MB while they wait, and 125 MB more while they are packed."""
DOCUMENTS_PER_STEP: Final = 2000


@dataclass(slots=True)
class _StepInput:
    """The batches of one step, and the results so far."""

    batches: list[ArchiveBatch] = field(default_factory=list)
    drafts: list[Drafts] = field(default_factory=list)
    chunks: int = 0
    documents: int = 0

    def add(self, batch: ArchiveBatch, drafts: Sequence[Drafts]) -> None:
        self.batches.append(batch)
        self.drafts += drafts
        self.chunks += batch.chunks
        self.documents += len(batch.documents)

    @property
    def full(self) -> bool:
        return self.chunks >= CHUNKS_PER_STEP or self.documents >= DOCUMENTS_PER_STEP


@dataclass(frozen=True, slots=True)
class _ChosenStep:
    """A step with selected documents."""

    read: _StepInput
    next_n: int
    """The chunk number after its last one."""
    taken: list[SelectedDocumentRows]
    skipped: int
    first_chunk_no: int


@dataclass(frozen=True, slots=True)
class _StoredStep:
    """A step with stored vectors and prepared rows."""

    begun: _ChosenStep
    step: Step
    written: StepRows

    @property
    def ids(self) -> frozenset[UUID]:
        return frozenset(one.doc_id for one in self.begun.taken)


@dataclass(slots=True)
class Steps:
    """The steps of one attempt."""

    ctx: JobContext
    deps: Deps
    target: ImportTarget
    total: int | None
    refused_inputs: list[str]
    """Keys of the archive's manifest that would have no effect here."""
    note: str | None = None
    """What its owner must know about the embedder of a new container."""
    ended: bool = False
    """Nothing more of the archive is needed."""
    brought: set[bytes] = field(default_factory=set)
    """Hashes of the blobs that this attempt has stored."""
    next_n: int = field(init=False)
    """The number of the first chunk of the next step."""
    refused_of_step: RefusedInputs = field(init=False)
    """Images without a vector in this attempt."""
    text_pieces: int = 0
    """Texts that it has embedded."""
    waiting: KeywordColumns | None = None
    """Live chunks of a new container whose postings are not written: no search reads it before the last step."""

    def __post_init__(self) -> None:
        self.next_n = self.target.payload.chunks_read
        self.refused_of_step = refused_inputs_of(self.ctx)

    async def run(self, path: Path) -> None:
        dims = self.target.header.space.dims
        await self._wait_again()
        with path.open("rb") as file:
            async with aclosing(self._ahead(self._steps(file, dims))) as steps:
                await self._take_in(steps)
        await self._index()
        await self._finish(path)

    async def _take_in(self, steps: AsyncIterator[_StepInput]) -> None:
        """Stores each step's vectors while the previous step commits and the next one is read."""
        ready: _StoredStep | None = None
        try:
            async for read in steps:
                begun = await self._begin(read, ready.ids if ready else frozenset())
                whole, ready = ready, None
                ready = await (self._meanwhile(begun, whole) if whole else self._stored(begun))
                if not self.target.same_space:  # minutes of embedding are not left to chance
                    whole, ready = ready, None
                    await self._commit(whole)
        except LatentError:  # what is whole is taken in, whatever is wrong with what comes after it
            if ready:
                await self._commit(ready)
            raise
        if ready:
            await self._commit(ready)

    async def _ahead(self, steps: AsyncIterator[_StepInput]) -> AsyncGenerator[_StepInput]:
        """Each step, while the next one is read.

        Not if a step must embed its chunks, which takes minutes: unreferenced blobs are kept only for a limited
        time.
        """
        if not self.target.same_space:
            async for one in steps:
                yield one
            return

        async def following() -> _StepInput | None:
            return await anext(steps, None)

        coming = asyncio.create_task(following())
        try:
            while (step := await coming) is not None:
                coming = asyncio.create_task(following())
                yield step
        finally:
            self.ended = True
            await asyncio.wait((coming,))  # the file is open until its reader has ended
            if not coming.cancelled():
                coming.exception()  # told by the step that asked for it, or of no interest any more

    async def _steps(self, file: IO[bytes], dims: int) -> AsyncIterator[_StepInput]:
        """The inputs of each step; its blobs are stored before."""
        stack = self.deps.stack
        read = read_batches(file, dims, stack.tmp, first=self.target.payload.next_batch)
        gathered = _StepInput()
        while not self.ended and (one := await asyncio.to_thread(self._next, read)) is not None:
            if isinstance(one, BlobFile):
                await self._store(one)
                continue
            gathered.add(*one)
            if gathered.full:
                yield gathered
                gathered = _StepInput()
        if gathered.batches and not self.ended:
            yield gathered

    def _next(
        self, read: Iterator[BlobFile | ArchiveBatch]
    ) -> BlobFile | tuple[ArchiveBatch, list[Drafts]] | None:
        try:
            one = next(read, None)
        except OSError as exc:
            raise OutOfSpace(
                f"the archive cannot be unpacked ({exc.strerror}): free space in the data directory"
            ) from exc
        if isinstance(one, ArchiveBatch):
            return one, draft_rows(self.target, one)
        return one

    async def _store(self, blob: BlobFile) -> None:
        stack = self.deps.stack
        try:
            await self.ctx.checkpoint()
            failpoint("import.before_blob")
            bucket = self.target.container.bucket
            await store_file(stack.db, stack.blobs.of(bucket), blob.path, Sha256(blob.sha256))
            self.brought.add(bytes.fromhex(blob.sha256))
            failpoint("import.after_blob")
        finally:
            await asyncio.to_thread(blob.path.unlink, missing_ok=True)

    async def _begin(self, read: _StepInput, under_way: AbstractSet[UUID]) -> _ChosenStep:
        """Select documents. Commits before the first external write, and not while another step holds the job."""
        next_n = selection.check_numbers(read.batches, self.next_n)
        async with self.deps.stack.db.transaction() as conn:
            await hold(conn, self.ctx.job)
            taken, skipped, first_chunk_no = await selection.begin(
                conn, self.target, read.batches, under_way
            )
        self.next_n = next_n
        return _ChosenStep(read, next_n, taken, skipped, first_chunk_no)

    async def _stored(self, begun: _ChosenStep) -> _StoredStep:
        """Store the vectors, and prepare the rows in the meantime."""
        target, read = self.target, begun.read
        counts, matrix, embedded = await import_commit.vectors_of(
            target, begun.taken, read.batches, self._embed
        )
        chunks = await asyncio.to_thread(list, numbered(target, begun.taken, begun.first_chunk_no))
        step = Step(begun.taken, begun.skipped, chunks, matrix, counts, embedded)
        rows_made = asyncio.create_task(asyncio.to_thread(write_rows, target, step, read.drafts))
        try:
            failpoint("import.before_vectors")
            with cleanup.requeued():
                await import_commit.stage(
                    self.deps.stack.vectors, target, step, self.ctx.checkpoint
                )
            failpoint("import.after_vectors")
        except BaseException:
            rows_made.cancel()
            raise
        return _StoredStep(begun, step, await rows_made)

    async def _meanwhile(self, begun: _ChosenStep, ready: _StoredStep) -> _StoredStep:
        """Store the vectors of ``begun`` while ``ready`` commits: they use different processes."""
        storing = asyncio.create_task(self._stored(begun))
        try:
            await self._commit(ready)
        except BaseException:
            await ended(storing)
            raise
        return await storing

    async def _commit(self, ready: _StoredStep) -> None:
        target = self.target
        await self.ctx.fence()  # a fresh lease: the heartbeat waits while the job's row is held
        before = target.payload
        live: KeywordColumns | None = None

        async def write(conn: Connection) -> ImportPayload:
            nonlocal live
            await hold(conn, self.ctx.job)
            stands = ImportPayload.model_validate(await payload_of(conn, self.ctx.job))
            if stands.next_batch != before.next_batch:
                return stands  # committed already; only the answer was lost
            done = await import_commit.commit(conn, target, ready.step, ready.written, self.brought)
            after, live = _advanced(before, ready, done, founded=target.founded), done.live
            await self._follow(conn, done)
            await amend(conn, self.ctx.job, after.model_dump(mode="json"))
            failpoint("import.before_commit")
            return after

        payload = await self.ctx.transact(write)
        failpoint("import.after_commit")
        self._go_on(payload)
        if target.founded and live is not None:
            parts = [live] if self.waiting is None else [self.waiting, live]
            self.waiting = await asyncio.to_thread(joined_columns, parts)
        self.deps.stack.metrics.published.inc(payload.documents - before.documents)
        await self.ctx.progress(payload.chunks_read, self.total, "chunks read")
        if self.waiting is not None and len(self.waiting) >= CHUNKS_INDEXED_TOGETHER:
            await self._index()

    async def _wait_again(self) -> None:
        """The chunks that waited for their postings when an earlier attempt ended, by their term vectors."""
        payload, container_id = self.target.payload, self.target.container.id
        if not payload.chunks_waiting:
            return
        parts: list[KeywordColumns] = []
        after = payload.chunks_read - payload.chunks_waiting - 1
        async with self.deps.stack.db.transaction() as conn:
            while page := await terms_after(conn, container_id, after):
                parts.append(await asyncio.to_thread(columns_of, page))
                after = page[-1].chunk_no
        self.waiting = await asyncio.to_thread(joined_columns, parts)

    async def _index(self) -> None:
        """Write the postings of all chunks that wait for them, in a transaction of its own."""
        waiting, self.waiting = self.waiting, None
        if waiting is None:
            return
        container_id, before = self.target.container.id, self.target.payload
        packed = await asyncio.to_thread(postings.prepare, container_id, waiting)
        await self.ctx.fence()

        async def write(conn: Connection) -> ImportPayload:
            await hold(conn, self.ctx.job)
            stands = ImportPayload.model_validate(await payload_of(conn, self.ctx.job))
            if stands.chunks_waiting != before.chunks_waiting:
                return stands  # committed already; only the answer was lost
            await import_commit.write_postings(conn, container_id, packed)
            after = before.model_copy(update={"chunks_waiting": 0})
            await amend(conn, self.ctx.job, after.model_dump(mode="json"))
            failpoint("import.before_postings")
            return after

        self._go_on(await self.ctx.transact(write))
        failpoint("import.after_postings")

    def _go_on(self, payload: ImportPayload) -> None:
        target = self.target
        self.target = ImportTarget(target.container, target.header, payload, target.same_space)

    async def _embed(
        self, chunks: Sequence[ChunkRecord], pictures: Sequence[str | None]
    ) -> tuple[list[int], Matrix]:
        deps, space = self.deps, self.target.container.space
        pieces = await asyncio.to_thread(
            lambda: [
                deps.embedding.pieces(space, chunk.embed_text, picture)
                for chunk, picture in zip(chunks, pictures, strict=True)
            ]
        )

        async def on_progress(_: int) -> None:
            await self.ctx.checkpoint()

        given = [piece for own in pieces for piece in own]
        failpoint("import.before_embedding")
        matrix = await deps.embedding.embed(
            space,
            given,
            self.ctx.checkpoint,
            on_progress,
            job_id=self.ctx.job.id,
            refused_inputs=self.refused_of_step,
        )
        self.text_pieces += sum(isinstance(piece, str) for piece in given)
        return kept_of(self.refused_of_step, pieces, matrix)

    async def _follow(self, conn: Connection, done: CommittedStep) -> None:
        """Follow-up work of a merge; for a new container it is done at the end."""
        if self.target.founded:
            return
        job, container_id = self.ctx.job, self.target.container.id
        if done.replaced or done.refused:
            await enqueue_purges(
                conn,
                container_id,
                below=done.replaced,
                only=done.refused,
                principal=job.principal,
                lease_seconds=self.deps.settings.lease_seconds,
            )
        await enqueue_if_needed(conn, container_id)
        if done.dedup_pending:
            await enqueue_dedup_pending(conn, container_id, principal=job.principal)

    async def _update_statistics(self) -> None:
        """Have the planner know the documents of a new container. After an error, autovacuum does it later."""
        try:
            async with self.deps.stack.db.transaction() as conn:
                await rows.update_statistics(conn)
        except LatentError as error:
            logger.warning("document_statistics_not_updated", extra={"cause": error.message})

    async def _finish(self, path: Path) -> None:
        self.refused_of_step.check(others=self.text_pieces)
        payload, job = self.target.payload, self.ctx.job
        container_id = self.target.container.id
        golden_set, skipped = await asyncio.to_thread(_golden_in, path)
        if self.target.founded:
            await self._update_statistics()

        async def write(conn: Connection) -> None:
            await hold(conn, job)
            if self.target.founded:
                if not await rows.lift(conn, container_id, job.id):
                    raise Conflict(
                        f"container '{container_id}' was removed during the import: import it again"
                    )
                await enqueue_dedup_pending(conn, container_id, principal=job.principal)
                await enqueue_if_needed(conn, container_id)
            if golden_set is not None:
                await _take_golden(conn, container_id, golden_set, job.principal)
            await archives.forget_import(conn, job.id)
            result = payload.model_dump(
                include=set(FRESH) - {"next_batch", "chunks_read", "chunks_waiting"}
            )
            collection_id = self.target.container.space.collection_id
            without_points = (
                await space_points.without_points(conn, container_id, collection_id)
                if payload.embedded
                else 0
            )
            await finish(
                conn,
                job,
                warnings=[
                    *_warnings(payload, self.refused_inputs, self.note),
                    *skipped,
                    *refused_input_warnings(without_points),
                ],
                result={"container_id": container_id, **result},
            )
            lease = self.deps.settings.lease_seconds
            await enqueue_collection(
                conn, principal=job.principal, delay_seconds=LEASES_TO_WAIT * lease
            )
            failpoint("import.before_finish")

        await self.ctx.transact(write)
        failpoint("import.after_finish")


def _advanced(
    before: ImportPayload, ready: _StoredStep, done: CommittedStep, *, founded: bool
) -> ImportPayload:
    step, begun = ready.step, ready.begun
    waiting = before.chunks_waiting + begun.next_n - before.chunks_read if founded else 0
    chunks = sum(len(one.chunks) for one in step.taken if one.doc_id in done.now_live)
    return before.model_copy(
        update={
            "next_batch": begun.read.batches[-1].number + 1,
            "chunks_read": begun.next_n,
            "chunks_waiting": waiting,
            "documents": before.documents + len(done.now_live),
            "chunks": before.chunks + chunks,
            "skipped": before.skipped + step.skipped,
            "overtaken": before.overtaken + len(done.refused),
            "embedded": before.embedded + step.embedded,
            "lacking_blobs": before.lacking_blobs + done.lacking_blobs,
        }
    )


def _warnings(
    payload: ImportPayload, refused_inputs: Sequence[str], note: str | None
) -> list[Issue]:
    found: list[Issue] = []
    if note:
        found.append(Issue(code=IssueCode.UNAVAILABLE, message=note))
    if payload.overtaken:
        message = (
            f"{payload.overtaken} documents of the archive were skipped, because they were deleted or added during the "
            "import. To get the archive's versions, import it again"
        )
        found.append(Issue(code=IssueCode.CONFLICT, message=message))
    if payload.lacking_blobs:
        message = (
            f"{payload.lacking_blobs} originals or page images are neither in the archive nor stored here: "
            "search works, but their pages cannot be opened"
        )
        found.append(Issue(code=IssueCode.INGEST_FAIL, message=message))
    if refused_inputs:
        message = f"the manifest was imported without {', '.join(refused_inputs)}, which this installation does not offer"
        found.append(Issue(code=IssueCode.POLICY, message=message))
    return found


def _golden_in(path: Path) -> tuple[GoldenSet | None, list[Issue]]:
    """The golden queries of the archive; invalid ones are skipped with a warning, which fails no import."""
    with path.open("rb") as archive:
        reader = ArchiveReader(archive)
        for _, member in zip(range(3), reader, strict=False):  # it stands third, or nowhere
            if member.name == GOLDEN:
                data = orjson.loads(reader.whole(MAX_SMALL))
                try:
                    return parse_golden(data, where="golden queries of the archive"), []
                except Invalid as exc:
                    message = f"the golden queries of the archive were not imported: {exc.message}"
                    return None, [Issue(code=IssueCode.POLICY, message=message)]
    return None, []


async def _take_golden(
    conn: Connection, container_id: str, golden_set: GoldenSet, principal: str
) -> None:
    """Store the golden queries of the archive, unless the container has some."""
    if (await golden.state(conn, container_id)).queries:
        return
    version = await golden.begin(conn, container_id, principal)
    await golden.replace(conn, container_id, golden_set, version)
