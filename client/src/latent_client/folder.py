"""Syncs a folder to a container: announces its files, then sends those that are new or changed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from pydantic import BaseModel

from latent_client.files import sha256_of
from latent_client.folder_listing import (
    FolderLister,
    FolderTarget,
    ListingClient,
    ListingVerdict,
    listed_file,
    parts,
)
from latent_client.sidecars import SidecarMetas, read_sidecars
from latent_client.uploads import FileUpload, SendingClient, in_parallel, ingest_file, send
from latent_client.waiting import HOUR, OnWait
from latent_client.walk import FoundFile, Walk, walk
from latent_core.domain.document import given_digest
from latent_core.domain.errors import Forbidden, IngestFailed, Invalid, TooLarge
from latent_core.domain.job import JobState, JobView
from latent_core.wire.documents import AddAnswer, ListedFile

__all__ = [
    "FolderPlan",
    "FolderProgress",
    "FolderReport",
    "IndexReport",
    "ensure_index_up_to_date",
    "ingest_file",
    "name_of",
    "plan_folder",
    "sync_folder",
]

AS_BEFORE = "unchanged since it failed; use --rebuild to try again; job"
R = TypeVar("R")
Stage = Literal["list", "hash", "upload"]


class FolderClient(ListingClient, SendingClient, Protocol):
    """The part of ``AsyncClient`` that syncs a folder."""


class IndexClient(FolderClient, Protocol):
    async def wait(
        self,
        job_ids: Sequence[int],
        on_progress: OnWait | None = None,
        *,
        timeout_seconds: float = HOUR,
    ) -> list[JobView]: ...


class SkippedFile(BaseModel):
    path: str
    reason: str


class FolderProgress(BaseModel):
    """Progress of ``sync_folder``."""

    stage: Stage
    done: int
    total: int
    path: str | None = None


class FolderReport(BaseModel):
    """Result of syncing a folder."""

    root: str
    files: int
    """Announced files, without ignored and skipped ones."""
    ignored: int
    ignored_paths: list[str] = []
    """The first thousand paths that the defaults or a ``.latentignore`` exclude; folders end in a slash."""
    unchanged: int = 0
    open_jobs: list[int] = []
    """Jobs of unchanged files that an earlier run sent and that are not searchable yet."""
    added: list[AddAnswer] = []
    deleted: list[str] = []
    """Source URIs of files that vanished from the folder."""
    delete_jobs: list[int] = []
    skipped: list[SkippedFile] = []
    """Files that were not sent, with the reason."""
    kept: str | None = None
    """Why documents that seem to have vanished were not deleted."""

    @property
    def job_ids(self) -> list[int]:
        """Jobs of the documents that this run added, and unfinished jobs of earlier runs."""
        return [*self.open_jobs, *(added.job_id for added in self.added)]


OnFolder = Callable[[FolderProgress], None]


@dataclass(frozen=True, slots=True)
class FolderPlan:
    """What ``sync_folder`` would do."""

    root: str
    files: list[FoundFile]
    """All readable files that would be announced, by path."""
    need: frozenset[str]
    """Paths of the files that would be sent."""
    vanished: int
    """Documents that would be deleted, counted up to 5,000 per part of the folder."""
    ignored: int
    skipped: list[SkippedFile]
    kept: str | None


async def sync_folder(
    client: FolderClient,
    container_id: str,
    folder: Path,
    root_name: str | None = None,
    on_progress: OnFolder | None = None,
    delete_vanished: bool = True,
    *,
    meta: Mapping[str, Any] | None = None,
    rebuild: bool = False,
) -> FolderReport:
    """Sync ``folder`` to the documents below ``file:///<root_name>/``.

    ``root_name`` defaults to the folder's name. ``meta`` applies to every file and overrides sidecars.
    With ``rebuild``, unchanged files are processed again too. The report lists files that cannot be read or
    that the server refuses; the others continue. Raises ``Invalid`` if no file can be read.
    """
    sync = await _opened(client, container_id, folder, root_name, on_progress, meta or {})
    return await sync.run(delete_vanished=delete_vanished, rebuild=rebuild)


async def plan_folder(
    client: FolderClient,
    container_id: str,
    folder: Path,
    root_name: str | None = None,
    on_progress: OnFolder | None = None,
    *,
    meta: Mapping[str, Any] | None = None,
    rebuild: bool = False,
) -> FolderPlan:
    """What ``sync_folder`` would do with the same arguments. Changes nothing."""
    sync = await _opened(client, container_id, folder, root_name, on_progress, meta or {})
    return await sync.plan(rebuild=rebuild)


def name_of(folder: Path) -> str:
    """The default root name of a folder; "" for the root of the file system."""
    return Path(os.path.abspath(folder)).name


async def _opened(
    client: FolderClient,
    container_id: str,
    folder: Path,
    root_name: str | None,
    on_progress: OnFolder | None,
    flags: Mapping[str, Any],
) -> _Sync:
    root = root_name or name_of(folder)
    if not root or "/" in root:
        raise Invalid(
            f"'{root}' is not a valid root name for {folder}; choose one without a slash (--root NAME)"
        )
    found = await asyncio.to_thread(walk, folder)
    _refuse_empty(folder, found)
    metas = await asyncio.to_thread(read_sidecars, found.files, flags)
    return _Sync(client, FolderTarget(container_id, root), found, metas, on_progress)


@dataclass(slots=True)
class _Skips:
    """Skipped files, each with its first reason."""

    reasons: dict[str, str] = field(default_factory=dict)

    def add(self, path: str, reason: str) -> None:
        self.reasons.setdefault(path, reason)

    def report(self) -> list[SkippedFile]:
        return [SkippedFile(path=path, reason=why) for path, why in sorted(self.reasons.items())]


class _Sync:
    """One run over one folder."""

    def __init__(
        self,
        client: FolderClient,
        target: FolderTarget,
        found: Walk,
        metas: SidecarMetas,
        on_progress: OnFolder | None,
    ) -> None:
        self._client = client
        self._target = target
        self._found = found
        self._metas = metas
        self._announcer = FolderLister(client, target)
        self._files = {file.path: file for file in found.files}
        self._on_progress = on_progress
        self._skips = _Skips()
        for skipped in found.skipped:
            self._skips.add(skipped.path, skipped.reason)
        for path, reason in metas.broken.items():
            self._skips.add(path, reason)

    async def run(self, *, delete_vanished: bool, rebuild: bool) -> FolderReport:
        kept = self._kept() if delete_vanished else None
        verdict = await self._announce(delete=delete_vanished and kept is None)
        files_to_send = self._files_to_send(verdict, rebuild=rebuild)
        if not rebuild:
            for one in verdict.refused:
                self._skips.add(one.path, f"{one.reason} ({AS_BEFORE} {one.job_id})")
        added = await self._upload(files_to_send, rebuild=rebuild)
        return FolderReport(
            root=self._target.root,
            files=len(self._files),
            ignored=self._found.ignored,
            ignored_paths=sorted(self._found.ignored_paths),
            unchanged=0 if rebuild else verdict.unchanged,
            open_jobs=[] if rebuild else verdict.open_jobs,
            added=added,
            deleted=verdict.deleted,
            delete_jobs=verdict.delete_jobs,
            skipped=self._skips.report(),
            kept=kept,
        )

    async def plan(self, *, rebuild: bool) -> FolderPlan:
        verdict = await self._announce(delete=False, count=True)
        need = frozenset(file.path for file in self._files_to_send(verdict, rebuild=rebuild))
        return FolderPlan(
            root=self._target.root,
            files=[file for file in self._files.values() if self._sendable(file)],
            need=need,
            vanished=verdict.vanished,
            ignored=self._found.ignored,
            skipped=self._skips.report(),
            kept=self._kept(),
        )

    def _kept(self) -> str | None:
        return None if self._found.complete else "parts of the folder could not be read"

    async def _announce(self, *, delete: bool, count: bool = False) -> ListingVerdict:
        """Announce all files. Those that the server cannot decide are announced again with their hash."""
        digests = self._digests()
        listed = [listed_file(file, digests) for file in self._files.values()]
        verdict, done = ListingVerdict(), 0
        for part in parts(listed):
            await self._announcer.announce(part, verdict, delete=delete, count=count)
            done += len(part.files)
            self._tell("list", done, len(listed))
        hashed = await self._hash(verdict.unsure, digests)
        verdict.unsure = []
        for part in parts(hashed) if hashed else ():
            await self._announcer.announce(part, verdict)
            self._tell("list", len(hashed), len(hashed))
        return verdict

    def _digests(self) -> dict[str, str | None]:
        """Digests of the meta that each file would be sent with."""
        common = given_digest(self._metas.flags)
        own = {path: given_digest(self._metas.of(path)) for path in self._metas.by_path}
        return {path: own.get(path, common) for path in self._files}

    async def _hash(
        self, paths: Sequence[str], digests: Mapping[str, str | None]
    ) -> list[ListedFile]:
        """Announcements with hashes of all readable files."""

        async def one(file: FoundFile) -> ListedFile | None:
            try:
                return listed_file(file, digests, await sha256_of(file.file))
            except Invalid as exc:
                self._skips.add(file.path, exc.message)
                return None

        results = await self._each("hash", self._sendables(paths), one)
        return [listed for listed in results if listed is not None]

    def _files_to_send(self, verdict: ListingVerdict, *, rebuild: bool) -> list[FoundFile]:
        return self._sendables(self._files if rebuild else verdict.need)

    def _sendables(self, paths: Sequence[str] | Mapping[str, Any]) -> list[FoundFile]:
        files_to_send = [self._files[path] for path in sorted(set(paths)) if path in self._files]
        return [file for file in files_to_send if self._sendable(file)]

    def _sendable(self, file: FoundFile) -> bool:
        if not file.readable:
            self._skips.add(file.path, "cannot be read: permission denied")
        return file.readable and file.path not in self._metas.broken

    async def _upload(self, files: Sequence[FoundFile], *, rebuild: bool) -> list[AddAnswer]:
        async def one(file: FoundFile) -> AddAnswer | None:
            uri = f"file:///{self._target.root}/{file.path}"
            meta = self._metas.of(file.path)
            sending = FileUpload(file.file, uri, file.mtime_ns, meta, rebuild)
            try:
                return await send(self._client, self._target.container_id, sending)
            except (Invalid, TooLarge, IngestFailed, Forbidden) as exc:
                self._skips.add(file.path, exc.message)
                return None

        results = await self._each("upload", files, one)
        return [added for added in results if added is not None]

    async def _each(
        self,
        stage: Literal["hash", "upload"],
        files: Sequence[FoundFile],
        work: Callable[[FoundFile], Awaitable[R]],
    ) -> list[R]:
        """Process several files at a time. Results keep their order; the first error cancels the rest."""
        done = 0

        async def one(file: FoundFile) -> R:
            nonlocal done
            result = await work(file)
            done += 1
            self._tell(stage, done, len(files), file.path)
            return result

        return await in_parallel(files, one)

    def _tell(self, stage: Stage, done: int, total: int, path: str | None = None) -> None:
        if self._on_progress is not None:
            self._on_progress(FolderProgress(stage=stage, done=done, total=total, path=path))


def _refuse_empty(folder: Path, found: Walk) -> None:
    if any(file.readable for file in found.files):
        return
    skipped_files = len(found.skipped) + len(found.files)
    raise Invalid(
        f"{folder} contains no readable document "
        f"({skipped_files} skipped, {found.ignored} ignored by the defaults or .latentignore)",
        skipped=[f"{s.path}: {s.reason}" for s in found.skipped[:20]],
    )


class IndexReport(BaseModel):
    """Result of bringing an index up to date."""

    folder: FolderReport
    jobs: list[JobView]
    """Jobs of the added documents, in their final states."""

    @property
    def failed(self) -> list[JobView]:
        return [job for job in self.jobs if job.state is not JobState.DONE]

    @property
    def up_to_date(self) -> bool:
        """Whether every file is searchable in its current version and vanished files are deleted."""
        return not self.failed and not self.folder.skipped and self.folder.kept is None


async def ensure_index_up_to_date(
    client: IndexClient,
    container_id: str,
    folder: Path,
    root_name: str | None = None,
    *,
    meta: Mapping[str, Any] | None = None,
    timeout_seconds: float = HOUR,
    on_folder: OnFolder | None = None,
    on_wait: OnWait | None = None,
) -> IndexReport:
    """Sync a folder and wait until its documents are searchable. ``TimedOut`` names the open jobs.

    It does not wait for deletions: vanished documents are invisible as soon as the folder is synced. An
    unchanged folder costs one call per 5,000 files.
    """
    report = await sync_folder(client, container_id, folder, root_name, on_folder, meta=meta)
    jobs = await client.wait(report.job_ids, on_wait, timeout_seconds=timeout_seconds)
    return IndexReport(folder=report, jobs=jobs)
