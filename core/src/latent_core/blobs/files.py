"""Blobs as files named by their hash: ``sha256/ab/cd/<hash>``."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Final

from typing_extensions import override

from latent_core.blobs.port import BlobStore, BlobStores
from latent_core.domain.errors import Misconfigured, NotFound, StoreFull, Unavailable
from latent_core.domain.ids import Sha256
from latent_core.domain.installation import MarkerPolicy

PIECE: Final = 256 * 1024
HASH: Final = re.compile("[0-9a-f]{64}")


class FileBlobStore(BlobStore):
    """Files below ``folder``; ``tmp`` is a folder on the same disk for unfinished files.

    A blob is written under another name, flushed to disk and then renamed: complete or absent. Writes fail while less
    than ``min_free`` bytes are free, since Postgres on the same disk needs space to continue.
    """

    def __init__(self, folder: Path, tmp: Path, *, min_free: int = 0) -> None:
        self._root = folder / "sha256"
        self._tmp = tmp
        self._min_free = min_free

    @property
    @override
    def bucket(self) -> str:
        return ""

    def _path(self, sha256: Sha256) -> Path:
        return self._root / sha256[:2] / sha256[2:4] / sha256

    @override
    async def put(self, data: bytes) -> Sha256:
        return await asyncio.to_thread(self._put, data)

    def _put(self, data: bytes) -> Sha256:
        sha256 = Sha256(hashlib.sha256(data).hexdigest())
        if not self._has(sha256, len(data)):
            with self._partial() as file:
                file.write(data)
                self._name(file, sha256)
        return sha256

    @override
    async def put_file(self, path: Path, sha256: Sha256) -> None:
        await asyncio.to_thread(self._put_file, path, sha256)

    def _put_file(self, path: Path, sha256: Sha256) -> None:
        with self._partial() as file, path.open("rb") as source:
            digest = hashlib.sha256()
            while piece := source.read(PIECE):
                digest.update(piece)
                file.write(piece)
            if digest.hexdigest() != sha256:
                raise Unavailable(f"'{path.name}' changed while it was stored; try again")
            self._name(file, sha256)

    def _has(self, sha256: Sha256, size: int) -> bool:
        try:
            return self._path(sha256).stat().st_size == size
        except FileNotFoundError:
            return False

    @contextmanager
    def _partial(self) -> Iterator[IO[bytes]]:
        """An unfinished file; removed at the end unless it was renamed."""
        self._require_space()
        with (
            _storage_errors(),
            NamedTemporaryFile(dir=self._tmp, prefix="blob-", delete=False) as file,
        ):
            try:
                yield file
            finally:
                Path(file.name).unlink(missing_ok=True)

    def _require_space(self) -> None:
        with _storage_errors():
            free = shutil.disk_usage(self._tmp).free if self._min_free else self._min_free
        if free < self._min_free:
            raise StoreFull(
                f"{free >> 20} MB are free on the disk of the data directory, {self._min_free >> 20} MB must be "
                "(LLC_MIN_FREE_BYTES): free disk space, then try again",
                service="minio",
            )

    def _name(self, file: IO[bytes], sha256: Sha256) -> None:
        """Rename a finished file durably."""
        file.flush()
        os.fsync(file.fileno())
        final = self._path(sha256)
        _make_durably(final.parent)
        Path(file.name).replace(final)
        _sync_folder(final.parent)

    @override
    async def get(self, sha256: Sha256) -> bytes:
        with _read_errors(sha256):
            return await asyncio.to_thread(self._path(sha256).read_bytes)

    @override
    async def stream(
        self, sha256: Sha256, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        with _read_errors(sha256):
            file = await asyncio.to_thread(self._path(sha256).open, "rb")
        try:
            await asyncio.to_thread(file.seek, start)
            left = None if end is None else max(0, end - start)
            while left is None or left > 0:
                piece = await asyncio.to_thread(
                    file.read, PIECE if left is None else min(PIECE, left)
                )
                if not piece:
                    return
                left = None if left is None else left - len(piece)
                yield piece
        finally:
            await asyncio.to_thread(file.close)

    @override
    async def size(self, sha256: Sha256) -> int | None:
        with _read_errors(sha256):
            try:
                return (await asyncio.to_thread(self._path(sha256).stat)).st_size
            except FileNotFoundError:
                return None

    @override
    async def stored_at(self, sha256: Sha256) -> datetime | None:
        with _read_errors(sha256):
            try:
                found = await asyncio.to_thread(self._path(sha256).stat)
            except FileNotFoundError:
                return None
        return datetime.fromtimestamp(found.st_mtime, UTC)

    @override
    async def local_copy(self, sha256: Sha256) -> Path:
        if await self.size(sha256) is None:
            raise _absent(sha256)
        return self._path(sha256)

    @override
    async def delete(self, sha256: Sha256) -> None:
        with _storage_errors():
            await asyncio.to_thread(self._path(sha256).unlink, missing_ok=True)

    @override
    async def hashes(self) -> AsyncIterator[Sha256]:
        for first in await asyncio.to_thread(_names, self._root):
            for second in await asyncio.to_thread(_names, self._root / first):
                for name in await asyncio.to_thread(_names, self._root / first / second):
                    if HASH.fullmatch(name):
                        yield Sha256(name)

    @override
    async def verify(self) -> None:
        """The lock on the data directory has verified it."""

    @override
    async def close(self) -> None:
        """Does nothing: no file stays open."""


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


def _make_durably(folder: Path) -> None:
    """Create ``folder`` and its missing parents."""
    if not folder.is_dir():
        _make_durably(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class FileBlobStores(BlobStores):
    """One store of files for all containers: a bucket that a manifest names has no effect."""

    def __init__(self, own: FileBlobStore) -> None:
        self._own = own

    @property
    @override
    def own(self) -> FileBlobStore:
        return self._own

    @override
    def bucket_of(self, named: str | None) -> str:
        return ""

    @override
    def of(self, bucket: str) -> BlobStore:
        if bucket:
            raise Misconfigured(
                f"these bytes are in the S3 bucket '{bucket}', but LLC_S3_ENDPOINT is not set: set it to that server"
            )
        return self._own

    @override
    async def prepare(self, bucket: str, policy: MarkerPolicy) -> None:
        self.of(bucket)

    @override
    async def adopt(self, bucket: str, *, by_name: bool) -> None:
        self.of(bucket)

    @override
    async def close(self) -> None:
        await self._own.close()


@contextmanager
def _storage_errors() -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(
                "the disk is full: free space on the disk of the data directory, then try again",
                service="minio",
            ) from exc
        raise Unavailable(f"the blob folder cannot be written: {exc.strerror}") from exc


@contextmanager
def _read_errors(sha256: Sha256) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as exc:
        raise _absent(sha256) from exc
    except OSError as exc:
        raise Unavailable(f"blob {sha256} cannot be read: {exc.strerror}") from exc


def _absent(sha256: Sha256) -> NotFound:
    return NotFound(f"blob {sha256} is not stored", sha256=sha256)
