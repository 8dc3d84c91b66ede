"""Repair what doctor found: each difference by its remedy, on a live system, in small steps.

Everything here may be done twice: a repair looks again at what it is to mend, and what is in order by then
is left alone. Whatever a job can do is left to a job.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol
from uuid import UUID

import numpy as np

from latent_core.blobs.port import BlobStore
from latent_core.domain.archive import ArchiveKind
from latent_core.domain.errors import LatentError, NotFound
from latent_core.domain.findings import Difference, DoctorReport, Remedy, Repair
from latent_core.domain.ids import Sha256, point_id
from latent_core.domain.job import JobKind
from latent_core.domain.vector import Matrix
from latent_core.embedding.picture import Picture, Piece, pieces
from latent_core.embedding.port import Embedder
from latent_core.generations import stamps
from latent_core.generations.accept import IngestPayload, Validators, accept
from latent_core.generations.delete import (
    LEASES_TO_WAIT,
    delete_documents,
    enqueue_collection,
    enqueue_purges,
)
from latent_core.generations.doctor import Pace
from latent_core.keywords.rebuild import rebuild
from latent_core.registry import (
    archives,
    blobs as blob_rows,
    checks,
    containers,
    documents,
    pages,
    proofs,
    repairs as rows,
)
from latent_core.registry.connection import Connection, Database
from latent_core.registry.containers import Container, Space
from latent_core.registry.documents import Source
from latent_core.vectors.port import Points, VectorIndex

logger = logging.getLogger(__name__)

CHUNKS_A_STEP: Final = 64
WEB: Final = ("http://", "https://")
DONE_BEFORE: Final = "another difference's repair has done it"
IN_MOTION: Final = "a job works on it: nothing is touched, look again when it has ended"


class Embedders(Protocol):
    def for_space(self, space: Space) -> Embedder: ...


@dataclass(frozen=True, slots=True)
class Stores:
    """What a repair writes to."""

    db: Database
    index: VectorIndex
    blobs: BlobStore
    embedders: Embedders


class Repairer:
    """Mends the differences of one report."""

    def __init__(
        self, stores: Stores, *, principal: str, lease_seconds: float, alone: bool = False
    ) -> None:
        """``alone`` as for ``Doctor``."""
        self._stores = stores
        self._alone = alone
        self._db = stores.db
        self._principal = principal
        self._lease = lease_seconds
        self._pace = Pace()
        self._done: set[tuple[Remedy, object]] = set()
        self._mend: dict[Remedy, Callable[[Container, Difference], Awaitable[str]]] = {
            Remedy.PURGE: self._purge,
            Remedy.REEMBED: self._reembed,
            Remedy.REBUILD: self._rebuild,
            Remedy.REDRAW: self._redraw,
            Remedy.REINDEX: self._reindex,
            Remedy.RESTAMP: self._restamp,
            Remedy.FORGET: self._forget,
        }

    async def repair(self, report: DoctorReport) -> list[Repair]:
        """What became of each difference. One that cannot be mended does not keep the others from it."""
        found: list[Repair] = []
        for container_id, of_container in report.containers.items():
            async with self._db.transaction() as conn:
                container = await containers.get(conn, container_id)
            if container is not None:
                found += [await self._one(container, d) for d in of_container.differences]
        return found + [await self._one(None, d) for d in report.stores]

    async def _one(self, container: Container | None, difference: Difference) -> Repair:
        await self._pace.rest()
        done, message = True, DONE_BEFORE
        try:
            if difference.repair is Remedy.NONE:
                done, message = False, "nothing repairs it by itself"
            elif self._first(container, difference):
                message = await self._mended(container, difference)
        except _Beyond as exc:
            done, message = False, str(exc)
        except LatentError as exc:
            logger.warning("repair_failed", extra={"object": difference.object, "cause": str(exc)})
            done, message = False, exc.message
        return Repair(
            kind=difference.kind,
            object=difference.object,
            repair=difference.repair,
            done=done,
            message=message,
        )

    def _first(self, container: Container | None, difference: Difference) -> bool:
        """Whether this repair was not done yet for another difference of the same thing."""
        whole: object = difference.object
        if difference.repair in (Remedy.PURGE, Remedy.REEMBED, Remedy.REBUILD):
            whole = (difference.doc_id, difference.generation)
        elif difference.repair in (Remedy.REINDEX, Remedy.RESTAMP):
            whole = container.id if container else None
        elif difference.repair is Remedy.REDRAW:
            whole = (difference.doc_id, difference.object)
        key = (difference.repair, whole)
        fresh = key not in self._done
        self._done.add(key)
        return fresh

    async def _mended(self, container: Container | None, difference: Difference) -> str:
        if difference.repair is Remedy.COLLECT:
            return await self._collect(difference)
        if difference.repair is Remedy.DROP:
            return await self._drop(difference)
        if difference.repair is Remedy.DISCARD:
            return await self._discard(difference)
        if container is None:
            raise _Beyond("it belongs to no container")
        return await self._mend[difference.repair](container, difference)

    # documents

    async def _purge(self, container: Container, difference: Difference) -> str:
        doc_id, generation = _placed(difference)
        async with self._db.transaction() as conn:
            if await containers.hold(conn, container.id) is None:
                raise _Beyond("the container is gone")
            await _lock(conn, doc_id)
            if await pages.is_live(conn, doc_id, generation):
                return await self._again(
                    conn, container, doc_id
                )  # with fresh points, and only those
            if await checks.with_open_work(conn, container.id, [doc_id]):
                return IN_MOTION
            pending = await checks.pending_without_job(conn, container.id, 1, among=[doc_id])
            if pending and pending[0]["has_original"]:  # its rows tell what it is made of
                return await self._again(conn, container, doc_id)
            await rows.overtake(conn, doc_id, generation)  # between this and the purge, too
            await proofs.delete_dead(conn, doc_id, generation + 1)
            job_id = await enqueue_purges(
                conn,
                container.id,
                only=[(doc_id, generation)],
                principal=self._principal,
                lease_seconds=self._lease,
                twice=False,
            )
        return f"job {job_id} purges generation {generation} of document {doc_id}"

    async def _reembed(self, container: Container, difference: Difference) -> str:
        doc_id, _ = _placed(difference)
        embedder = self._stores.embedders.for_space(container.space)
        stored, after = 0, -1
        while True:
            async with self._db.transaction() as conn:
                found = await rows.live_chunks(
                    conn, doc_id, after, CHUNKS_A_STEP, stored_in=container.space.stored_in
                )
            if not found:
                return f"{stored} vectors of document {doc_id} are stored again"
            points = await self._points(embedder, doc_id, found)
            if points is None:  # its chunks were cut by another tokenizer
                return await self._rebuild(container, difference)
            if points.ids:
                await self._stores.index.upsert(container.space.collection(), points)
            await self._purge_if_superseded(container, doc_id, found[0]["generation"])
            stored, after = stored + len(points.ids), found[-1]["ordinal"]

    async def _points(
        self, embedder: Embedder, doc_id: UUID, found: list[dict[str, Any]]
    ) -> Points | None:
        found = [r for r in found if r["windows"]]  # the picture of a page may have none
        parts = [
            pieces(r["embed_text"], r["picture"], embedder.tokenizer, embedder.model) for r in found
        ]
        if any(len(p) != r["windows"] for p, r in zip(parts, found, strict=True)):
            return None
        vectors = await self._embedded(embedder, [piece for part in parts for piece in part])
        each = [(r, w) for r in found for w in range(r["windows"])]
        return Points(
            ids=[point_id(r["id"], r["generation"], w) for r, w in each],
            vectors=vectors,
            doc_ids=[doc_id for _ in each],
            generations=[r["generation"] for r, _ in each],
            ords=[r["ord"] for r, _ in each],
        )

    async def _embedded(self, embedder: Embedder, made_of: Sequence[Piece]) -> Matrix:
        """In order; pictures one by one, since few are ever lacking."""
        vectors = np.empty((len(made_of), embedder.model.dims), np.float32)
        texts = {n: piece for n, piece in enumerate(made_of) if isinstance(piece, str)}
        if texts:
            vectors[list(texts)] = await embedder.embed_documents(list(texts.values()))
        for n, piece in enumerate(made_of):
            if isinstance(piece, Picture):
                image = await self._stores.blobs.get(piece.sha256)
                vectors[n] = (await embedder.embed_images([image]))[0]
        return vectors

    async def _purge_if_superseded(
        self, container: Container, doc_id: UUID, generation: int
    ) -> None:
        """What was live when it was read may have been purged while it was embedded."""
        async with self._db.transaction() as conn:
            if await containers.hold(conn, container.id) is not None and not await pages.is_live(
                conn, doc_id, generation
            ):
                await enqueue_purges(
                    conn,
                    container.id,
                    only=[(doc_id, generation)],
                    principal=self._principal,
                    lease_seconds=self._lease,
                    twice=False,
                )

    async def _rebuild(self, container: Container, difference: Difference) -> str:
        if difference.doc_id is None:
            raise _Beyond("no document is known to it")
        async with self._db.transaction() as conn:
            if await containers.hold(conn, container.id) is None:
                raise _Beyond("the container is gone")
            await _lock(conn, difference.doc_id)
            return await self._again(conn, container, difference.doc_id)

    async def _again(self, conn: Connection, container: Container, doc_id: UUID) -> str:
        """Have a document, or the corpus it is a record of, made again from its original."""
        found = await rows.original(conn, doc_id)
        if found is None:
            raise _Beyond("its original is not known: add the document again, or delete it")
        return await self._accept(conn, container, found, rebuild=True)

    async def _accept(
        self, conn: Connection, container: Container, found: dict[str, Any], *, rebuild: bool
    ) -> str:
        """What is queued is newer, and is not to be replaced by this."""
        await documents.lock(conn, [found["id"]])
        if await checks.awaited(conn, container.id, found["id"]):
            return IN_MOTION
        said = Validators.model_validate(found["validators"]) if found["validators"] else None
        payload = IngestPayload(
            uri=found["uri"],
            filename=found["filename"],
            mime=said.mime if said is not None else found["mime"],
            sha256=found["sha256"],
            validators=said,
            accepted_at=datetime.now(UTC),
            modified_at=found["source_modified_at"],
            mtime_ns=found["source_mtime_ns"],
            meta=found["meta"],
            given_meta=found["given_meta"],
            rebuild=rebuild,
        )
        accepted = await accept(
            conn,
            Source(container.id, found["uri"], found["mime"]),
            payload,
            kind=JobKind.CORPUS if found["corpus"] else JobKind.INGEST,
            principal=self._principal,
        )
        return f"job {accepted.job_id} makes {found['uri']} again from its original"

    async def _forget(self, container: Container, difference: Difference) -> str:
        doc_id = difference.doc_id
        async with self._db.transaction() as conn:
            if doc_id is None or await containers.hold(conn, container.id) is None:
                raise _Beyond("it is gone")
            await _lock(conn, doc_id)
            row = await documents.row(conn, doc_id)
            if row is None or not await checks.pending_without_job(
                conn, container.id, 1, among=[doc_id]
            ):
                return "it waits no longer, or a job works on it by now"
            if str(row["uri"]).startswith(WEB):
                return await self._fetch(conn, container, row)
            await delete_documents(
                conn,
                container.id,
                [row["id"]],
                principal=self._principal,
                lease_seconds=self._lease,
            )
            await enqueue_collection(  # of the bytes it was to be made of
                conn, principal=self._principal, delay_seconds=LEASES_TO_WAIT * self._lease
            )
        return f"{row['uri']} is taken back: nothing of it was stored; add it again"

    async def _fetch(self, conn: Connection, container: Container, row: dict[str, Any]) -> str:
        await documents.lock(conn, [row["id"]])
        if await checks.awaited(conn, container.id, row["id"]):
            return IN_MOTION
        payload = IngestPayload(
            uri=row["uri"],
            url=row["uri"],
            filename=row["title"] or row["uri"],
            mime=row["mime"],
            accepted_at=datetime.now(UTC),
        )
        source = Source(container.id, row["uri"], row["mime"])
        accepted = await accept(
            conn, source, payload, kind=JobKind.INGEST, principal=self._principal
        )
        return f"job {accepted.job_id} fetches {row['uri']} again"

    # stores

    async def _reindex(self, container: Container, _: Difference) -> str:
        return f"{await rebuild(self._db, container.id)} chunks are indexed again"

    async def _restamp(self, container: Container, _: Difference) -> str:
        async with self._db.transaction() as conn:
            await rows.mark_live(conn, container.id)
        await stamps.mend(self._db, self._stores.index, container)
        return "its rows say what is: the live space and its dimensions, the etag, the languages"

    async def _redraw(self, container: Container, difference: Difference) -> str:
        """Bytes that are what their hash says are believed; others go, and what shows them is drawn again."""
        sha256, (doc_id, generation) = Sha256(difference.object), _placed(difference)
        size = await self._whole(sha256)
        if size is not None:
            async with self._db.transaction() as conn:
                await rows.mark_present(conn, sha256, size)
            return "its bytes are whole; its row says so now"
        async with self._db.transaction() as conn:
            await rows.distrust(conn, sha256)
            await self._stores.blobs.delete(sha256)
            roles = await rows.drop_references(conn, doc_id, generation, sha256)
            found = await rows.original(conn, doc_id)
            try:
                if not roles:
                    return await self._without_original(conn, container, doc_id)
                if found is None:
                    raise _Beyond("its original is not known: add the document again")
                return await self._accept(conn, container, found, rebuild=False)
            except _Beyond as exc:  # that the bytes are gone stays noted: a listing asks for them
                beyond = exc
        raise beyond

    async def _whole(self, sha256: Sha256) -> int | None:
        """The blob's length when it is what its hash says."""
        digest, size = hashlib.sha256(), 0
        try:
            async for piece in self._stores.blobs.stream(sha256):
                digest.update(piece)
                size += len(piece)
        except NotFound:
            return None
        return size if digest.hexdigest() == sha256 else None

    async def _without_original(self, conn: Connection, container: Container, doc_id: UUID) -> str:
        row = await documents.row(conn, doc_id)
        if row is not None and str(row["uri"]).startswith(WEB):
            return await self._fetch(conn, container, row)
        name = row["uri"] if row else doc_id
        raise _Beyond(f"the original is lost, its text is still found: add {name} again")

    async def _collect(self, difference: Difference) -> str:
        sha256 = Sha256(difference.object)
        size = await self._stores.blobs.size(sha256)
        async with self._db.transaction() as conn:
            if size is not None:  # bytes without a row get one, younger than what is collected
                await blob_rows.adopt(conn, sha256, size)
            job_id = await enqueue_collection(conn, principal=self._principal, delay_seconds=0.0)
        return f"job {job_id} removes it when nobody has used it for two leases"

    async def _discard(self, difference: Difference) -> str:
        archive_id, kind = int(difference.object), ArchiveKind(difference.kind)
        async with self._db.transaction() as conn:
            found = await archives.get(conn, archive_id, kind)
        if found is None:
            return "it is forgotten already"
        size = await self._whole(Sha256(found.sha256))
        async with self._db.transaction() as conn:
            if size is not None:
                await rows.mark_present(conn, found.sha256, size)
                return "its bytes are whole; its row says so now"
            await archives.remove(conn, archive_id, kind)
            await enqueue_collection(conn, principal=self._principal, delay_seconds=0.0)
        return f"the {kind.value} is forgotten: ask for it again"

    async def _drop(self, difference: Difference) -> str:
        async with self._db.transaction() as conn:
            owned = {s.collection() for s in await containers.all_spaces(conn)}
            made = await containers.collections_made(conn)
        if difference.object in owned:
            return "it belongs to a container by now"
        if not self._alone and difference.object not in made:
            raise _Beyond("it was not made by this installation")
        await self._stores.index.drop_collection(difference.object)
        return "it is dropped"


class _Beyond(Exception):
    """What no repair can do, and what a person can."""


async def _lock(conn: Connection, doc_id: UUID) -> None:
    """A document, and first the corpus it is a record of: in the order of a corpus's own job."""
    row = await documents.row(conn, doc_id)
    if row is not None and row["parent_id"] is not None:
        await documents.lock(conn, [row["parent_id"]])
    await documents.lock(conn, [doc_id])


def _placed(difference: Difference) -> tuple[UUID, int]:
    if difference.doc_id is None or difference.generation is None:
        raise _Beyond("no document is known to it")
    return difference.doc_id, difference.generation
