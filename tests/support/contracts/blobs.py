"""What every ``BlobStore`` must do. An adapter's tests inherit ``BlobStoreContract``.

The subclass gives a fixture ``store`` with an open, empty ``BlobStore``.
"""

from __future__ import annotations

import asyncio
import hashlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from latent_core.blobs.port import BlobStore
from latent_core.domain.errors import LatentError, NotFound
from latent_core.domain.ids import Sha256

ABSENT = Sha256("0" * 64)
LARGE = bytes(range(256)) * 4096 + b"end"
"""More than one piece of a stream."""


def sha256_of(data: bytes) -> Sha256:
    return Sha256(hashlib.sha256(data).hexdigest())


async def joined(store: BlobStore, sha256: Sha256, start: int = 0, end: int | None = None) -> bytes:
    return b"".join([piece async for piece in store.stream(sha256, start=start, end=end)])


async def listed(store: BlobStore) -> list[Sha256]:
    return sorted([sha256 async for sha256 in store.hashes()])


class BlobStoreContract:
    @pytest.mark.parametrize("data", [b"", b"a", LARGE], ids=["empty", "small", "large"])
    async def test_bytes_come_back_under_their_hash(self, store: BlobStore, data: bytes) -> None:
        sha256 = await store.put(data)
        assert sha256 == sha256_of(data)
        assert await store.get(sha256) == data
        assert await store.size(sha256) == len(data)
        assert await joined(store, sha256) == data

    async def test_the_time_of_storing_is_known(self, store: BlobStore) -> None:
        assert await store.stored_at(ABSENT) is None
        found = await store.stored_at(await store.put(b"a"))
        assert found is not None
        assert abs(datetime.now(UTC) - found) < timedelta(hours=1)

    async def test_the_same_bytes_may_be_stored_again(self, store: BlobStore) -> None:
        assert await store.put(LARGE) == await store.put(LARGE)
        assert await listed(store) == [sha256_of(LARGE)]

    async def test_many_may_store_the_same_bytes_at_once(self, store: BlobStore) -> None:
        hashes = await asyncio.gather(*(store.put(LARGE) for _ in range(8)))
        assert set(hashes) == {sha256_of(LARGE)}
        assert await store.get(hashes[0]) == LARGE

    async def test_a_file_is_stored_under_the_hash_that_was_computed(
        self, store: BlobStore, tmp_path: Path
    ) -> None:
        path = tmp_path / "upload"
        path.write_bytes(LARGE)
        await store.put_file(path, sha256_of(LARGE))
        assert await store.get(sha256_of(LARGE)) == LARGE

    async def test_a_file_that_is_not_what_its_hash_says_is_refused(
        self, store: BlobStore, tmp_path: Path
    ) -> None:
        path = tmp_path / "upload"
        path.write_bytes(b"changed since")
        with pytest.raises(LatentError):
            await store.put_file(path, sha256_of(b"as it was"))
        assert await listed(store) == []

    async def test_a_range_is_streamed_in_part(self, store: BlobStore) -> None:
        sha256 = await store.put(LARGE)
        for start, end in (
            (0, 0),
            (0, 1),
            (5, 300_000),
            (len(LARGE) - 3, None),
            (7, len(LARGE) + 9),
        ):
            assert await joined(store, sha256, start, end) == LARGE[start:end]
        assert await joined(store, sha256, len(LARGE) + 1) == b""

    async def test_a_stream_may_be_left_early(self, store: BlobStore) -> None:
        sha256 = await store.put(LARGE)
        async for piece in store.stream(sha256):
            assert LARGE.startswith(piece)
            break
        await store.delete(sha256)
        assert await store.size(sha256) is None

    async def test_what_is_absent_is_not_found(self, store: BlobStore) -> None:
        assert await store.size(ABSENT) is None
        for attempt in (store.get(ABSENT), store.local_copy(ABSENT), joined(store, ABSENT)):
            with pytest.raises(NotFound):
                await attempt

    async def test_a_local_copy_holds_the_bytes(self, store: BlobStore) -> None:
        path = await store.local_copy(await store.put(LARGE))
        assert path.read_bytes() == LARGE

    async def test_what_is_deleted_is_gone_and_may_be_deleted_again(self, store: BlobStore) -> None:
        kept, gone = await store.put(b"kept"), await store.put(b"gone")
        await store.delete(gone)
        await store.delete(gone)
        assert await listed(store) == [kept]

    async def test_all_hashes_are_listed(self, store: BlobStore) -> None:
        hashes = [await store.put(bytes([n])) for n in range(20)]
        assert await listed(store) == sorted(hashes)
