"""The original: the bytes of a source as a local file, stored by their hash before anything is derived from them."""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Final

from latent_core.blobs.port import BlobStore
from latent_core.blobs.writer import store_file
from latent_core.db.containers import Container
from latent_core.domain.errors import IngestFailed, OutOfSpace, TooLarge
from latent_core.domain.ids import Sha256
from latent_core.ingest.accept import IngestPayload
from latent_core.queue.context import JobContext
from latent_core.queue.lease import amend
from latent_workers.deps import Deps

PIECE: Final = 1024 * 1024
COPIES: Final = 3
"""Attempts to copy a file that changes during the copy."""


@dataclass(frozen=True, slots=True)
class Original:
    """The bytes of a source. The blob store owns ``path``: do not change it."""

    path: Path
    sha256: Sha256
    bytes: int
    fetched_at: datetime
    modified_at: datetime | None
    mtime_ns: int | None


def stored(payload: IngestPayload, original: Original) -> IngestPayload:
    """``payload`` with the stored bytes: later steps and attempts use the same version of the file."""
    return payload.model_copy(
        update={
            "sha256": original.sha256,
            "accepted_at": original.fetched_at,
            "modified_at": original.modified_at,
            "mtime_ns": original.mtime_ns,
        }
    )


async def fetch(
    ctx: JobContext, deps: Deps, container: Container, payload: IngestPayload
) -> Original:
    """The original of ``payload``: an upload's blob, or a file below an ingest root, which is stored first."""
    store = deps.stack.blobs.of(container.bucket)
    if payload.sha256 is not None:
        sha256 = Sha256(payload.sha256)
        path = await store.local_copy(sha256)
        size = path.stat().st_size  # just written here, or looked at: a thread would cost more
        return Original(
            path, sha256, size, payload.accepted_at, payload.modified_at, payload.mtime_ns
        )
    if payload.path is None:
        raise IngestFailed(f"the location of the bytes of {payload.uri} is missing: add it again")
    original = await _from_folder(ctx, deps, store, Path(payload.path), payload)
    # Until the document is published, the job is all that keeps the bytes from being garbage.
    amended = stored(payload, original).model_dump(mode="json")
    await ctx.transact(lambda conn: amend(conn, ctx.job, amended))
    return original


async def _from_folder(
    ctx: JobContext, deps: Deps, store: BlobStore, source: Path, payload: IngestPayload
) -> Original:
    """A file below an ingest root; times from the sender have priority over the file's own."""
    limit = deps.settings.max_upload_bytes
    copy, sha256, status = await asyncio.to_thread(
        _copy, source, deps.settings.ingest_roots, deps.stack.tmp, limit
    )
    try:
        await ctx.checkpoint()
        await store_file(deps.stack.db, store, copy, sha256)
    finally:
        await asyncio.to_thread(copy.unlink, missing_ok=True)
    path = await store.local_copy(sha256)
    modified = payload.modified_at or datetime.fromtimestamp(status.st_mtime, UTC)
    mtime_ns = status.st_mtime_ns if payload.mtime_ns is None else payload.mtime_ns
    return Original(path, sha256, status.st_size, datetime.now(UTC), modified, mtime_ns)


def _copy(
    source: Path, roots: tuple[Path, ...], folder: Path, limit: int
) -> tuple[Path, Sha256, os.stat_result]:
    """Copy a file that may change: the copy is one consistent version, with the modification time of that version."""
    for _ in range(COPIES):
        try:
            copied = _copy_once(source, roots, folder, limit)
        except OSError as exc:
            raise _trouble(source, exc) from exc
        if copied is not None:
            return copied
    raise IngestFailed(
        f"'{source.name}' kept changing during the copy: add it again when it no longer changes"
    )


def _copy_once(
    source: Path, roots: tuple[Path, ...], folder: Path, limit: int
) -> tuple[Path, Sha256, os.stat_result] | None:
    """None if the file changed during the copy. On return ``folder`` contains only the result."""
    with NamedTemporaryFile(dir=folder, prefix="fetch-", delete=False) as copy:
        path = Path(copy.name)
        try:
            status = _fill(copy, source, roots, limit)
            copy.flush()
            if status is not None:
                return path, _hash(path), status
        except BaseException:
            path.unlink()
            raise
    path.unlink()
    return None


def _fill(
    copy: IO[bytes], source: Path, roots: tuple[Path, ...], limit: int
) -> os.stat_result | None:
    # Not blocking: a pipe of that name would have the worker wait for whoever writes into it.
    with open(os.open(source, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        before = os.fstat(file.fileno())
        _refuse_strange(source, roots, before)
        left = limit
        while piece := file.read(min(PIECE, left + 1)):
            left -= len(piece)
            if left < 0:
                raise TooLarge(f"'{source.name}' has more bytes than the limit of {limit}")
            copy.write(piece)
        after = os.fstat(file.fileno())
    same = (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size)
    return after if same else None


def _refuse_strange(source: Path, roots: tuple[Path, ...], opened: os.stat_result) -> None:
    """The opened file must be below a root: its name may point elsewhere by now."""
    if not stat.S_ISREG(opened.st_mode):
        raise IngestFailed(f"'{source.name}' is no file")
    meant = source.resolve(strict=True)
    if not any(meant.is_relative_to(root) for root in roots) or not os.path.samestat(
        opened, meant.stat()
    ):
        raise IngestFailed(f"'{source.name}' is no longer below LLC_INGEST_ROOTS")


def _hash(path: Path) -> Sha256:
    with path.open("rb") as file:
        return Sha256(hashlib.file_digest(file, "sha256").hexdigest())


def _trouble(source: Path, exc: OSError) -> IngestFailed | OutOfSpace:
    if exc.filename is not None and Path(exc.filename) == source:
        return IngestFailed(f"'{source.name}' cannot be read: {exc.strerror}")
    return OutOfSpace(
        f"'{source.name}' could not be copied into the data directory: {exc.strerror}"
    )
