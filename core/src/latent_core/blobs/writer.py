"""Stores a blob: intent row, bytes, presence, in this order, so that no blob is ever stored without a row."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from latent_core.blobs.port import BlobStore
from latent_core.db.blobs import blobs
from latent_core.db.connection import Database
from latent_core.domain.errors import Unavailable
from latent_core.domain.ids import Sha256
from latent_core.runtime.failpoint import failpoint

TRIES: Final = 3


async def store(db: Database, blob_store: BlobStore, data: bytes) -> Sha256:
    """Store ``data`` durably; returns its hash."""
    sha256 = Sha256(await asyncio.to_thread(lambda: hashlib.sha256(data).hexdigest()))

    async def write() -> None:
        await blob_store.put(data)

    await _keep(db, blob_store, sha256, len(data), write)
    return sha256


async def store_file(db: Database, blob_store: BlobStore, path: Path, sha256: Sha256) -> None:
    """Store the file at ``path``, whose hash the caller computed. May move the file."""
    size = (await asyncio.to_thread(path.stat)).st_size

    async def write() -> None:
        await blob_store.put_file(path, sha256)

    await _keep(db, blob_store, sha256, size, write)


async def _keep(
    db: Database,
    blob_store: BlobStore,
    sha256: Sha256,
    size: int,
    write: Callable[[], Awaitable[None]],
) -> None:
    """Retries when the row was removed between intent and presence, since the bytes may have been removed, too."""
    for _ in range(TRIES):
        async with db.single() as conn:
            present = await blobs.intend(conn, blob_store.bucket, sha256, size)
        if present and await blob_store.size(sha256) == size:
            return
        failpoint("blob.before_bytes")
        await write()
        failpoint("blob.after_bytes")
        async with db.single() as conn:
            if await blobs.confirm(conn, blob_store.bucket, sha256):
                return
    raise Unavailable(f"blob {sha256} was removed each time it was stored; try again")
