"""Blobs as files, and the protocol that keeps rows and bytes together."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from typing_extensions import override

from latent_core.blobs.files import PIECE, FileBlobStore
from latent_core.blobs.writer import store, store_file
from latent_core.db.connection import Database
from latent_core.domain.errors import NotFound, OutOfSpace, Unavailable
from latent_core.domain.ids import Sha256
from tests.support.contracts.blobs import LARGE, BlobStoreContract, joined, listed, sha256_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tmp").mkdir()
    return tmp_path / "blobs"


@pytest.fixture(name="store")
def file_store(folder: Path) -> FileBlobStore:
    return FileBlobStore(folder, folder.parent / "tmp")


def files_below(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


class TestContract(BlobStoreContract):
    pass


class TestFiles:
    async def test_a_blob_stands_under_its_hash_and_nothing_else_is_left(
        self, store: FileBlobStore, folder: Path
    ) -> None:
        sha256 = await store.put(b"bytes")
        assert files_below(folder.parent) == [f"blobs/sha256/{sha256[:2]}/{sha256[2:4]}/{sha256}"]

    async def test_others_on_the_machine_may_not_read_it(self, store: FileBlobStore) -> None:
        path = await store.local_copy(await store.put(b"private"))
        assert path.stat().st_mode & 0o077 == 0

    async def test_a_blob_that_was_cut_off_is_written_again(self, store: FileBlobStore) -> None:
        path = await store.local_copy(await store.put(LARGE))
        path.write_bytes(LARGE[:10])
        assert await store.get(await store.put(LARGE)) == LARGE

    async def test_what_is_stored_already_is_not_written_again(self, store: FileBlobStore) -> None:
        path = await store.local_copy(await store.put(LARGE))
        before = path.stat()
        await store.put(LARGE)
        assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)

    async def test_a_stored_file_is_left_where_it_was(
        self, store: FileBlobStore, folder: Path
    ) -> None:
        path = folder.parent / "mine"
        path.write_bytes(b"mine")
        await store.put_file(path, sha256_of(b"mine"))
        assert path.read_bytes() == b"mine"

    async def test_files_that_are_no_blobs_are_not_listed(
        self, store: FileBlobStore, folder: Path
    ) -> None:
        sha256 = await store.put(b"x")
        (folder / "sha256" / sha256[:2] / sha256[2:4] / "note.txt").write_text(
            "x", encoding="utf-8"
        )
        assert await listed(store) == [sha256]

    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
    async def test_a_full_disk_is_out_of_space_and_leaves_nothing(
        self, store: FileBlobStore, folder: Path, monkeypatch: pytest.MonkeyPatch, code: int
    ) -> None:
        def full(_: int) -> None:
            raise OSError(code, os.strerror(code))

        path = folder.parent / "upload"
        path.write_bytes(b"x")
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(OutOfSpace):
                await store.put(LARGE)
            with pytest.raises(OutOfSpace):
                await store.put_file(path, sha256_of(b"x"))
        assert files_below(folder.parent) == ["upload"]

    async def test_a_folder_that_cannot_be_written_is_unavailable(
        self, store: FileBlobStore, folder: Path
    ) -> None:
        (folder.parent / "tmp").rmdir()
        with pytest.raises(Unavailable, match="cannot be written"):
            await store.put(b"x")

    async def test_a_blob_that_cannot_be_read_is_unavailable(self, store: FileBlobStore) -> None:
        path = await store.local_copy(await store.put(b"x"))
        path.unlink()
        path.mkdir()
        with pytest.raises(Unavailable, match="cannot be read"):
            await store.get(sha256_of(b"x"))
        with pytest.raises(Unavailable, match="cannot be read"):
            await joined(store, sha256_of(b"x"))

    @settings(max_examples=30, deadline=None)
    @given(st.integers(0, 3 * PIECE), st.none() | st.integers(0, 3 * PIECE))
    def test_every_range_is_a_slice(
        self, tmp_path_factory: pytest.TempPathFactory, start: int, end: int | None
    ) -> None:
        base = tmp_path_factory.getbasetemp() / "ranges"
        (base / "tmp").mkdir(parents=True, exist_ok=True)
        store = FileBlobStore(base / "blobs", base / "tmp")

        async def check() -> None:
            sha256 = await store.put(LARGE)
            last = len(LARGE) if end is None else max(start, end)
            assert await joined(store, sha256, start, end) == LARGE[start:last]

        asyncio.run(check())


WRITER = """
import asyncio, resource, signal, sys
from pathlib import Path
from latent_core.blobs.files import FileBlobStore
from latent_core.domain.errors import Unavailable
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
base = Path(sys.argv[1])
try:
    asyncio.run(FileBlobStore(base / "blobs", base / "tmp").put(bytes(1_000_000)))
except Unavailable:
    print("refused")
"""


def test_a_write_that_the_system_cuts_off_leaves_nothing(folder: Path) -> None:
    """The kernel itself ends the write in its midst, as on a full disk."""
    command = [sys.executable, "-c", WRITER, str(folder.parent)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout == "refused\n"
    assert files_below(folder.parent) == []


ROW = "SELECT state, bytes FROM blobs WHERE sha256 = %(sha256)s"
CONDEMN = "UPDATE blobs SET state = 'condemned' WHERE sha256 = %(sha256)s"
REMOVE = "DELETE FROM blobs WHERE sha256 = %(sha256)s"


async def row_of(database: Database, sha256: Sha256) -> Any:
    async with database.transaction() as conn:
        row = await (await conn.execute(ROW, {"sha256": sha256})).fetchone()
    return (row["state"], row["bytes"]) if row else None


class WatchedWriter(FileBlobStore):
    """Calls ``before`` with the hash when bytes are about to be written."""

    def __init__(self, folder: Path, tmp: Path, before: Any) -> None:
        super().__init__(folder, tmp)
        self.before = before

    @override
    async def put(self, data: bytes) -> Sha256:
        await self.before(sha256_of(data))
        return await super().put(data)


class TestWriter:
    async def test_the_row_says_intent_before_the_bytes_and_present_after_them(
        self, database: Database, folder: Path
    ) -> None:
        seen = []

        async def look(sha256: Sha256) -> None:
            seen.append(await row_of(database, sha256))

        watched = WatchedWriter(folder, folder.parent / "tmp", look)
        sha256 = await store(database, watched, LARGE)
        assert seen == [("intent", len(LARGE))]
        assert await row_of(database, sha256) == ("present", len(LARGE))
        assert await watched.get(sha256) == LARGE

    async def test_a_file_is_kept_like_bytes(self, database: Database, folder: Path) -> None:
        files = FileBlobStore(folder, folder.parent / "tmp")
        path = folder.parent / "upload"
        path.write_bytes(LARGE)
        await store_file(database, files, path, sha256_of(LARGE))
        assert await row_of(database, sha256_of(LARGE)) == ("present", len(LARGE))
        assert await files.get(sha256_of(LARGE)) == LARGE

    async def test_bytes_that_are_there_are_not_written_again(
        self, database: Database, folder: Path
    ) -> None:
        writes = []

        async def note(sha256: Sha256) -> None:
            writes.append(sha256)

        watched = WatchedWriter(folder, folder.parent / "tmp", note)
        sha256 = await store(database, watched, b"same")
        await store(database, watched, b"same")
        assert len(writes) == 1
        await watched.delete(sha256)
        await store(database, watched, b"same")
        assert len(writes) == 2, "the row alone is not believed"

    async def test_a_write_that_fails_leaves_its_intent_to_be_found(
        self, database: Database, folder: Path
    ) -> None:
        async def fail(_: Sha256) -> None:
            raise OutOfSpace("full")

        with pytest.raises(OutOfSpace):
            await store(database, WatchedWriter(folder, folder.parent / "tmp", fail), b"x")
        assert await row_of(database, sha256_of(b"x")) == ("intent", 1)

    async def test_a_condemned_blob_is_revived(self, database: Database, folder: Path) -> None:
        files = FileBlobStore(folder, folder.parent / "tmp")
        sha256 = await store(database, files, b"back again")
        async with database.transaction() as conn:
            await conn.execute(CONDEMN, {"sha256": sha256})
        await files.delete(sha256)
        await store(database, files, b"back again")
        assert await row_of(database, sha256) == ("present", 10)
        assert await files.get(sha256) == b"back again"

    async def test_one_who_stores_waits_for_one_who_is_removing_the_same(
        self, database: Database, folder: Path
    ) -> None:
        files = FileBlobStore(folder, folder.parent / "tmp")
        sha256 = await store(database, files, b"contested")
        async with database.transaction() as remover:
            await remover.execute(f"{ROW} FOR UPDATE", {"sha256": sha256})
            storing = asyncio.create_task(store(database, files, b"contested"))
            await files.delete(sha256)
            await remover.execute(REMOVE, {"sha256": sha256})
            assert not storing.done()
        assert await asyncio.wait_for(storing, 20) == sha256
        assert await row_of(database, sha256) == ("present", 9)
        assert await files.get(sha256) == b"contested"

    @pytest.mark.parametrize("removal", [REMOVE, CONDEMN])
    async def test_a_blob_removed_while_it_is_written_is_written_again(
        self, database: Database, folder: Path, removal: str
    ) -> None:
        writes = 0

        async def remove_once(sha256: Sha256) -> None:
            nonlocal writes
            writes += 1
            if writes == 1:
                async with database.transaction() as conn:
                    await conn.execute(removal, {"sha256": sha256})

        watched = WatchedWriter(folder, folder.parent / "tmp", remove_once)
        sha256 = await store(database, watched, b"x")
        assert writes == 2
        assert await row_of(database, sha256) == ("present", 1)

    async def test_a_blob_removed_every_time_is_given_up(
        self, database: Database, folder: Path
    ) -> None:
        async def remove(sha256: Sha256) -> None:
            async with database.transaction() as conn:
                await conn.execute(REMOVE, {"sha256": sha256})

        with pytest.raises(Unavailable, match="removed"):
            await store(database, WatchedWriter(folder, folder.parent / "tmp", remove), b"x")

    async def test_many_may_keep_the_same_bytes_at_once(
        self, database: Database, folder: Path
    ) -> None:
        files = FileBlobStore(folder, folder.parent / "tmp")
        hashes = await asyncio.gather(*(store(database, files, LARGE) for _ in range(6)))
        assert set(hashes) == {Sha256(hashlib.sha256(LARGE).hexdigest())}
        assert await row_of(database, hashes[0]) == ("present", len(LARGE))

    async def test_the_row_of_an_absent_blob_is_none(
        self, database: Database, folder: Path
    ) -> None:
        files = FileBlobStore(folder, folder.parent / "tmp")
        with pytest.raises(NotFound):
            await files.get(sha256_of(b"never"))
        assert await row_of(database, sha256_of(b"never")) is None
