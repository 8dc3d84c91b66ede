"""Compare the rows of blobs with the stored bytes, and find blobs that nothing refers to."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from latent_core.blobs.port import BlobStore, BlobStores
from latent_core.db import containers, installation
from latent_core.db.blobs import blobs as rows
from latent_core.db.connection import Database
from latent_core.db.doctor import checks
from latent_core.db.doctor.checks import ArchiveRow, LiveRefRow
from latent_core.db.transfer import archives
from latent_core.doctor.context import MAX_DIFFERENCES, PAGE, DoctorThrottle
from latent_core.domain.errors import LatentError, NotFound
from latent_core.domain.findings import Remedy, StoreDifference
from latent_core.domain.ids import Sha256
from latent_core.domain.job import ArchiveKind

CLOCK_MARGIN: Final = timedelta(hours=1)
"""The clocks of Postgres and of the store may differ."""


class BlobCheck:
    def __init__(
        self, db: Database, stores: BlobStores, pace: DoctorThrottle, *, deep: bool
    ) -> None:
        """``deep``: bytes are read and hashed, not only measured."""
        self._db = db
        self._stores = stores
        self._unusable: dict[str, StoreDifference | None] = {"": None}
        """Why a bucket cannot be examined, by bucket. An error of the own one ends the run."""
        self._adopted_at: datetime | None = None
        self._pace = pace
        self._deep = deep

    async def of_documents(self, container_id: str) -> AsyncIterator[StoreDifference]:
        """References of live documents to blobs that are missing or damaged."""
        after = (UUID(int=0), "", 0)
        async with self._db.transaction() as conn:
            bucket = await containers.bucket(conn, container_id) or ""
        await self._newly_unusable([bucket])
        if (unusable := self._unusable[bucket]) is not None:
            yield unusable
            return
        while True:
            async with self._db.transaction() as conn:
                refs = await checks.live_refs(conn, container_id, after, PAGE)
            if not refs:
                return
            after = (refs[-1].doc_id, refs[-1].role, refs[-1].part)
            await self._pace.rest()
            for row in refs:
                cause = await self._wrong_bytes(row)
                if cause is not None and await self._still_refers(row):
                    yield StoreDifference(
                        kind="blob",
                        object=_name(row.bucket, row.sha256),
                        message=f"{row.role} of document {row.doc_id} {cause}",
                        repair=Remedy.REINGEST,
                        doc_id=row.doc_id,
                        generation=row.generation,
                    )

    async def of_archives(self, container_id: str | None) -> AsyncIterator[StoreDifference]:
        """Exports and backups whose file is missing or damaged; None: those of deleted containers."""
        after = 0
        while True:
            async with self._db.transaction() as conn:
                found = await checks.archives(conn, container_id, after, PAGE)
            if not found:
                return
            after = found[-1].id
            await self._pace.rest()
            for unusable in await self._newly_unusable(row.bucket for row in found):
                yield unusable
            for row in found:
                if self._unusable[row.bucket] is not None:
                    continue
                cause = await self._wrong_bytes(row)
                if cause is not None and await self._still_kept(row):
                    yield _archive(row, cause)

    async def without_purpose(self, grace_seconds: float) -> AsyncIterator[StoreDifference]:
        """Rows that are unreferenced for longer than the grace period, and bytes without a row. Those that may belong to
        rows which an adopted dump lacks have no remedy: they are notes."""
        async with self._db.transaction() as conn:
            self._adopted_at = await installation.adopted_at(conn)
            garbage = await checks.blob_garbage(conn, grace_seconds, MAX_DIFFERENCES)
            named = await rows.buckets(conn)
        for row in garbage:
            yield _orphan(row.bucket, row.sha256, f"nothing refers to it ({row.state})")
        for unusable in await self._newly_unusable(named):
            yield unusable
        for bucket in ("", *named):
            if self._unusable[bucket] is not None:
                continue
            async for difference in self._without_rows(self._stores.of(bucket)):
                yield difference

    async def _newly_unusable(self, buckets: Iterable[str]) -> list[StoreDifference]:
        """Ask each bucket once per run; one difference for each that cannot be examined."""
        found: list[StoreDifference] = []
        for bucket in buckets:
            if bucket in self._unusable:
                continue
            self._unusable[bucket] = None
            try:
                await self._stores.of(bucket).verify()
            except LatentError as error:
                found.append(StoreDifference(kind="bucket", object=bucket, message=error.message))
                self._unusable[bucket] = found[-1]
        return found

    async def _without_rows(self, store: BlobStore) -> AsyncIterator[StoreDifference]:
        batch: list[str] = []
        async for sha256 in store.hashes():
            batch.append(sha256)
            if len(batch) == PAGE:
                for difference in await self._without_row(store, batch):
                    yield difference
                batch = []
        for difference in await self._without_row(store, batch):
            yield difference

    async def _without_row(self, store: BlobStore, hashes: list[str]) -> list[StoreDifference]:
        if not hashes:
            return []
        await self._pace.rest()
        async with self._db.transaction() as conn:
            known = await checks.known_blobs(conn, store.bucket, hashes)
        unknown = [
            (sha256, await store.stored_at(Sha256(sha256)))
            for sha256 in hashes
            if sha256 not in known
        ]
        return [
            self._stray(store.bucket, sha256, stored_at)
            for sha256, stored_at in unknown
            if stored_at is not None
        ]

    def _stray(self, bucket: str, sha256: str, stored_at: datetime) -> StoreDifference:
        adopted_at = self._adopted_at
        if adopted_at is None or stored_at > adopted_at + CLOCK_MARGIN:
            return _orphan(bucket, sha256, "is stored and has no row")
        return StoreDifference(
            kind="blob",
            object=_name(bucket, sha256),
            message=(
                f"has no row and is older than `latent adopt` of {adopted_at:%Y-%m-%d}: it may be the original of a document "
                "that was added after the dump. It is not removed. Restore a later dump, or add the document again"
            ),
        )

    async def _wrong_bytes(self, row: LiveRefRow | ArchiveRow) -> str | None:
        sha256, store = Sha256(row.sha256), self._stores.of(row.bucket)
        size = await store.size(sha256)
        if size is None:
            return f"is missing; {row.bytes} bytes expected"
        if row.state != "present" or size != row.bytes:
            return f"has {size} bytes ({row.state}); {row.bytes} expected"
        if self._deep and await self._hashed(store, sha256) not in (None, sha256):
            return "is damaged: its bytes do not match its hash"
        return None

    async def _hashed(self, store: BlobStore, sha256: Sha256) -> str | None:
        """The hash of the stored bytes; None when they were removed meanwhile."""
        digest = hashlib.sha256()
        try:
            async for piece in store.stream(sha256):
                digest.update(piece)
                await self._pace.rest()
        except NotFound:
            return None
        return digest.hexdigest()

    async def _still_refers(self, row: LiveRefRow) -> bool:
        async with self._db.transaction() as conn:
            return await checks.refers(conn, row.doc_id, row.generation, row.role, row.part)

    async def _still_kept(self, row: ArchiveRow) -> bool:
        async with self._db.transaction() as conn:
            return await archives.get(conn, row.id, ArchiveKind(row.kind)) is not None


def _name(bucket: str, sha256: str) -> str:
    """The object of a difference; ``blob_of`` reads it."""
    return f"{bucket}/{sha256}" if bucket else sha256


def blob_of(difference: StoreDifference) -> tuple[str, Sha256]:
    """Bucket and hash of the blob that a difference names."""
    bucket, _, sha256 = difference.object.rpartition("/")
    return bucket, Sha256(sha256)


def _orphan(bucket: str, sha256: str, message: str) -> StoreDifference:
    return StoreDifference(
        kind="blob", object=_name(bucket, sha256), message=message, repair=Remedy.DROP
    )


def _archive(row: ArchiveRow, cause: str) -> StoreDifference:
    message = f"its file {cause}"
    if row.kind == ArchiveKind.BACKUP:
        message += (
            f". Create a new backup (`latent backup now {row.container_id}`) and delete this one "
            f"(`latent backup delete {row.id} --yes`). A downloaded copy can still be imported with `latent import`."
        )
    return StoreDifference(
        kind=row.kind,
        object=str(row.id),
        message=message,
        repair=Remedy.NONE if row.kind == ArchiveKind.BACKUP else Remedy.DROP,
    )
