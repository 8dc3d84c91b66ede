"""Calls for exports, imports and backups, and the download of archives to files."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from latent_client.files import read_blocks
from latent_client.transport import ClientCalls, part
from latent_core.domain.errors import Invalid, Unavailable
from latent_core.wire.documents import OriginalAnswer
from latent_core.wire.jobs import JobAccepted
from latent_core.wire.transfers import (
    ArchiveAnswer,
    ArchiveView,
    BackupList,
    BackupRemoved,
    ExportAnswer,
    ImportAnswer,
)

READ_SECONDS: Final = 300.0
"""Read timeout while an archive is downloaded."""


OnBytes = Callable[[int, int], None]
"""Called with the bytes so far and the total."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file behind a signed link, with its hash and size."""

    url: str
    sha256: str
    bytes: int
    remedy: str
    """What to do if the bytes do not match."""


class TransferCalls(ClientCalls):
    """Calls of ``AsyncClient`` for containers as files."""

    async def export(
        self, container_id: str, *, vectors: bool = True, blobs: bool = True
    ) -> ExportAnswer:
        """The archive of a container, or the job that creates it."""
        body = {"container_id": container_id, "vectors": vectors, "blobs": blobs}
        return await self._transport.ask(
            ExportAnswer, "POST", "/v1/containers/export", json=body, repeatable=True
        )

    async def exported(self, archive_id: int) -> ArchiveAnswer:
        """A finished export, by the ``archive_id`` in the result of its job."""
        return await self._transport.ask(ArchiveAnswer, "GET", f"/v1/exports/{archive_id}")

    async def import_archive(
        self,
        file: Path,
        *,
        container_id: str | None = None,
        merge: bool = False,
        policy: str | None = None,
        on_progress: OnBytes | None = None,
    ) -> ImportAnswer:
        """Upload an archive. The job verifies it before it imports anything. ``policy`` (default ``skip``) needs ``merge``."""

        def body() -> AsyncIterator[bytes]:
            if on_progress is None:
                return read_blocks(file)
            total = file.stat().st_size
            return read_blocks(file, lambda done: on_progress(done, total))

        query: dict[str, str | None] = {
            "filename": file.name,
            "container_id": container_id,
            "merge": "true" if merge else None,
            "policy": policy,
        }
        return await self._transport.ask(
            ImportAnswer, "POST", "/v1/imports", query=query, body=body
        )

    async def backups(self, container_id: str | None = None) -> list[ArchiveView]:
        """Backups, newest first."""
        pages = self._pages(BackupList, "/v1/backups", container_id=container_id)
        return [one async for page in pages for one in page.backups]

    async def backup(self, container_id: str) -> JobAccepted:
        """Create a backup of a container."""
        body = {"container_id": container_id}
        return await self._transport.ask(
            JobAccepted, "POST", "/v1/backups", json=body, repeatable=True
        )

    async def backup_link(self, backup_id: int) -> ArchiveAnswer:
        """A backup, with a link to its file."""
        return await self._transport.ask(
            ArchiveAnswer, "GET", f"/v1/backups/{part(str(backup_id))}"
        )

    async def verify_backup(self, backup_id: int) -> JobAccepted:
        """Start a job that verifies every hash and count of a backup."""
        path = f"/v1/backups/{part(str(backup_id))}/verify"
        return await self._transport.ask(JobAccepted, "POST", path, repeatable=True)

    async def delete_backup(self, backup_id: int) -> BackupRemoved:
        """Delete a backup."""
        path = f"/v1/backups/{part(str(backup_id))}"
        return await self._transport.ask(BackupRemoved, "DELETE", path)

    async def restore_backup(
        self,
        backup_id: int,
        *,
        container_id: str | None = None,
        merge: bool = False,
        policy: str | None = None,
    ) -> ImportAnswer:
        """Import a backup, like ``import_archive`` imports a file."""
        body: dict[str, Any] = {"merge": merge}
        body |= {} if policy is None else {"policy": policy}
        body |= {} if container_id is None else {"container_id": container_id}
        path = f"/v1/backups/{part(str(backup_id))}/restore"
        return await self._transport.ask(ImportAnswer, "POST", path, json=body)

    async def download(
        self, link: ArchiveAnswer, file: Path, on_progress: OnBytes | None = None
    ) -> None:
        """Write an archive to ``file`` atomically and verify its hash."""
        remote = RemoteFile(link.url, link.archive.sha256, link.archive.bytes, "export again")
        await self._download(remote, file, on_progress)

    async def download_original(
        self, link: OriginalAnswer, file: Path, on_progress: OnBytes | None = None
    ) -> None:
        """Write the original of a document to ``file`` atomically and verify its hash."""
        remote = RemoteFile(link.url, link.sha256, link.bytes, "download it again")
        await self._download(remote, file, on_progress)

    async def _download(self, remote: RemoteFile, file: Path, on_progress: OnBytes | None) -> None:
        draft = file.with_name(f"{file.name}.part")
        try:
            await asyncio.to_thread(file.parent.mkdir, parents=True, exist_ok=True)
            with await asyncio.to_thread(draft.open, "wb") as out:
                sha256 = await self._received(remote, out, on_progress)
            if sha256 != remote.sha256:
                raise Unavailable(f"the downloaded bytes do not match their hash; {remote.remedy}")
            await asyncio.to_thread(draft.replace, file)
        except OSError as exc:
            raise Invalid(f"{file} cannot be written: {exc.strerror or exc}") from exc
        finally:
            await asyncio.to_thread(draft.unlink, missing_ok=True)

    async def _received(
        self, remote: RemoteFile, out: IO[bytes], on_progress: OnBytes | None
    ) -> str:
        digest, size = hashlib.sha256(), 0
        async with self._transport.open_link(remote.url, read_seconds=READ_SECONDS) as response:
            async for piece in response.aiter_bytes():
                await asyncio.to_thread(out.write, piece)
                digest.update(piece)
                size += len(piece)
                if on_progress is not None:
                    on_progress(size, remote.bytes)
        return digest.hexdigest()
