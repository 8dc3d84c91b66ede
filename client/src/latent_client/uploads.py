"""Sends one file: uploads it, then adds it. Waits and retries when the gateway limits the rate."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from latent_client.files import recorded_time, unreadable
from latent_client.sidecars import read_meta, sidecar_of
from latent_core.domain.errors import Invalid, RateLimited
from latent_core.wire.documents import AddAnswer, UploadView

CONCURRENCY: Final = 4
RATE_ATTEMPTS: Final = 6
LONGEST_RATE_PAUSE: Final = 60.0
READINGS: Final = 3
"""Of a file that changes while it is read. Then the last one counts, and the next sync reads it again."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class FileUpload:
    """A file to send."""

    file: Path
    source_uri: str
    meta: Mapping[str, Any] = field(default_factory=dict)
    rebuild: bool = False
    password: str | None = field(default=None, repr=False)
    """Opens it, if it is an encrypted PDF or Office file."""


class SendingClient(Protocol):
    """The part of ``AsyncClient`` that sends a document."""

    async def upload(self, container_id: str, file: Path) -> UploadView: ...

    async def add(
        self,
        container_id: str,
        *,
        file_ref: str | None = None,
        source_uri: str | None = None,
        modified_at: datetime | None = None,
        mtime_ns: int | None = None,
        meta: dict[str, Any] | None = None,
        rebuild: bool = False,
        password: str | None = None,
    ) -> AddAnswer: ...


async def ingest_file(
    client: SendingClient,
    container_id: str,
    file: Path,
    source_uri: str | None = None,
    *,
    meta: Mapping[str, Any] | None = None,
    rebuild: bool = False,
    password: str | None = None,
) -> AddAnswer:
    """Send one file as the document ``source_uri``, by default ``file:///<its name>``.

    ``meta`` overrides the sidecar of the file. With ``rebuild``, an unchanged file is processed again. ``password``
    opens an encrypted PDF or Office file; it is not kept.
    """
    if not await asyncio.to_thread(file.is_file):
        raise Invalid(f"{file} is not a file; give an existing file or folder")
    sidecar = await asyncio.to_thread(sidecar_of, file)
    sidecar_meta = await asyncio.to_thread(read_meta, sidecar) if sidecar else {}
    sending = FileUpload(
        file,
        source_uri or f"file:///{file.name}",
        {**sidecar_meta, **(meta or {})},
        rebuild,
        password,
    )
    return await send(client, container_id, sending)


async def send(client: SendingClient, container_id: str, sending: FileUpload) -> AddAnswer:
    """Send the file as it is before and after it is read, not a mixture of two versions."""
    after = await _state(sending.file)
    for _ in range(READINGS):
        before, recorded = after, recorded_time(after.mtime_ns)
        upload = await _rate_limited(lambda: client.upload(container_id, sending.file))
        after = await _state(sending.file)
        if after == before:
            break
    return await _rate_limited(
        lambda: client.add(
            container_id,
            file_ref=upload.file_ref,
            source_uri=sending.source_uri,
            modified_at=datetime.fromtimestamp(before.mtime_ns // 1_000_000_000, UTC),
            mtime_ns=recorded,
            meta=dict(sending.meta) or None,
            rebuild=sending.rebuild,
            password=sending.password,
        )
    )


@dataclass(frozen=True, slots=True)
class _FileState:
    """Differs between two versions of a file. Inodes do not count: some file systems give another one each time."""

    mtime_ns: int
    bytes: int


async def _state(file: Path) -> _FileState:
    try:
        status = await asyncio.to_thread(os.stat, file)
    except OSError as exc:
        raise unreadable(file, exc) from exc
    return _FileState(status.st_mtime_ns, status.st_size)


async def in_parallel(items: Iterable[T], work: Callable[[T], Awaitable[R]]) -> list[R]:
    """Run ``work`` on at most CONCURRENCY items at a time. Results keep their order; the first error cancels the rest."""
    queue = iter(list(enumerate(items)))
    results: dict[int, R] = {}

    async def worker() -> None:
        for index, item in queue:
            results[index] = await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(CONCURRENCY):
                group.create_task(worker())
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [results[index] for index in sorted(results)]


async def _rate_limited(call: Callable[[], Awaitable[T]]) -> T:
    """Retry a rate-limited call after the pause that the gateway asks for. A refused call had no effect."""
    for _ in range(RATE_ATTEMPTS - 1):
        try:
            return await call()
        except RateLimited as exc:
            pause = float(exc.details.get("retry_after", 1.0))
        await asyncio.sleep(min(pause, LONGEST_RATE_PAUSE))
    return await call()
