"""Uploads that use condemned blobs again against the collection of garbage: nothing that is used is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from uuid import UUID, uuid4

import pytest
from psycopg.errors import ForeignKeyViolation

from latent_core.blobs.files import FileBlobStore
from latent_core.blobs.writer import store
from latent_core.db import containers
from latent_core.db.connection import Database
from latent_core.domain.errors import Unavailable
from latent_core.domain.ids import Sha256
from latent_core.domain.manifest.model import Manifest
from latent_core.ingest.purge import purge_blobs

CONTENTS = [b"picture %d" % n for n in range(60)]
UPLOADERS = 4
REFER = """
INSERT INTO uploads (id, container_id, sha256, filename, mime, bytes, principal)
VALUES (%(id)s, 'notes', %(sha256)s, 'a', 'text/plain', 1, 'local:you')
"""
FORGET = "DELETE FROM uploads WHERE id = %(id)s"


async def _always() -> None:
    """A checkpoint that never ends anything."""


class Race:
    """Few contents, always condemned and always used again."""

    def __init__(self, db: Database, blobs: FileBlobStore, events: int, grace: float) -> None:
        self._db = db
        self._blobs = blobs
        self._left = events
        self._grace = grace
        self._over = asyncio.Event()
        self.removed = 0
        self.refused = 0
        self.used = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            collector = group.create_task(self._collect())
            uploads = [group.create_task(self._upload(Random(n))) for n in range(UPLOADERS)]
            await asyncio.gather(*uploads)
            self._over.set()
            await collector

    async def _upload(self, random: Random) -> None:
        while self._left > 0:
            self._left -= 1
            data = random.choice(CONTENTS)
            sha256, upload = await self._accepted(data)
            # From here on it is used, whatever the collector believes.
            assert await self._blobs.get(sha256) == data
            await asyncio.sleep(0)
            assert await self._blobs.get(sha256) == data
            self.used += 1
            async with self._db.transaction() as conn:
                await conn.execute(FORGET, {"id": upload})

    async def _accepted(self, data: bytes) -> tuple[Sha256, UUID]:
        """Until it is accepted the sender is told so, and sends again."""
        while True:
            try:
                sha256 = await store(self._db, self._blobs, data)
                return sha256, await self._refer(sha256)
            except (Unavailable, ForeignKeyViolation):
                self.refused += 1

    async def _refer(self, sha256: Sha256) -> UUID:
        upload = uuid4()
        async with self._db.transaction() as conn:
            await conn.execute(REFER, {"id": upload, "sha256": sha256})
        return upload

    async def _collect(self) -> None:
        while not self._over.is_set():
            self.removed += await purge_blobs(
                self._db, self._blobs, older_than_seconds=self._grace, checkpoint=_always
            )
            await asyncio.sleep(0)


async def _race(database: Database, folder: Path, events: int) -> Race:
    (folder / "tmp").mkdir()
    async with database.transaction() as conn:
        await containers.insert(conn, Manifest(id="notes", name="Notes"), "e")
    blobs = FileBlobStore(folder / "blobs", folder / "tmp")
    # Far shorter than in life: blobs are condemned between two uses, and now and then between their bytes
    # and the reference to them, which is then refused.
    race = Race(database, blobs, events, grace=0.02)
    await race.run()
    return race


async def test_a_blob_that_is_used_again_is_never_taken_by_the_collection(
    database: Database, tmp_path: Path
) -> None:
    race = await _race(database, tmp_path, 400)
    assert race.used == 400
    assert race.removed > 0, "the collection must have had something to take"


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_ten_thousand_uses_against_the_collection_lose_nothing(
    database: Database, tmp_path: Path
) -> None:
    race = await _race(database, tmp_path, 10_000)
    assert race.used == 10_000
    assert race.removed > 0, "the collection must have had something to take"
