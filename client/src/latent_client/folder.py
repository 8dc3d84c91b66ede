"""Syncs a folder to a container: announces its files, then sends those that are new or changed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from pydantic import BaseModel

from latent_client.files import recorded_time, sha256_of
from latent_client.folder_listing import (
    FolderLister,
    FolderTarget,
    ListingClient,
    ListingVerdict,
    listed_file,
    parts,
)
from latent_client.folder_source import (
    FolderSource,
    SourceClient,
    SourceFinder,
    SyncConsent,
)
from latent_client.sidecars import SidecarMetas, read_sidecars
from latent_client.uploads import FileUpload, SendingClient, in_parallel, ingest_file, send
from latent_client.waiting import HOUR, OnWait
from latent_client.walk import FoundFile, Walk, walk
from latent_core.domain.document import given_digest
from latent_core.domain.errors import Conflict, Forbidden, IngestFailed, Invalid, TooLarge
from latent_core.domain.job import JobState, JobView
from latent_core.domain.source import prefix_of
from latent_core.wire.documents import AddAnswer, ListedFile

__all__ = [
    "FolderPlan",
    "FolderProgress",
    "FolderReport",
    "IndexReport",
    "SyncConsent",
    "ensure_index_up_to_date",
    "ingest_file",
    "name_of",
    "plan_folder",
    "sync_folder",
]

SOURCE_DETAIL = "source_id"
"""In the details of a ``Conflict``: the gateway does not know the source of this client."""
AS_BEFORE = "unchanged since it failed; use --rebuild to try again; job"
R = TypeVar("R")
Stage = Literal["list", "hash", "upload"]


class FolderClient(ListingClient, SendingClient, SourceClient, Protocol):
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
    """The first thousand paths that the defaults, git or a ``.latentignore`` exclude; folders end in a slash."""
    unread: dict[str, int] = {}
    """Files of types that no parser reads, by type."""
    checkouts: list[str] = []
    """Nested repositories and work trees, which are not read."""
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
    withheld: int = 0
    """Documents that were not deleted because they are too many to delete without consent."""
    notice: str | None = None
    """Why the root is not the folder's name, or that a source was taken over."""

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
    """Documents that would be deleted, unless they are ``kept``."""
    ignored: int
    skipped: list[SkippedFile]
    kept: str | None
    notice: str | None = None
    """What a person must decide first."""
    unread: dict[str, int] = field(default_factory=dict)
    """As in ``FolderReport``."""
    checkouts: list[str] = field(default_factory=list)
    """As in ``FolderReport``."""


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
    consent: SyncConsent = SyncConsent(),
    password: str | None = None,
) -> FolderReport:
    """Sync ``folder`` to the documents below ``file:///<root_name>/``.

    ``root_name`` defaults to the folder's name; if another folder has it, the root is ``<root_name>~2``.
    ``meta`` applies to every file and overrides sidecars. With ``rebuild``, unchanged files are processed again
    too. ``password`` opens encrypted PDFs and Office files, also those that were refused before; it is not kept.
    The report lists files that cannot be read or that the server refuses; the others continue.

    Raises ``Invalid`` if no file can be read, and ``Conflict`` if the folder may have been moved here and
    ``consent`` does not say whether.
    """
    opening = await _opened(
        client, container_id, folder, root_name, on_progress, meta or {}, consent
    )
    source = opening.finder.registered()
    known = source is not None
    if not (known and consent.allow_deletions):
        opening.refuse_empty()
    source = source or await opening.finder.claim(opening.found.files)
    try:
        return await opening.sync(source).run(
            delete_vanished=delete_vanished, rebuild=rebuild, password=password
        )
    except Conflict as exc:
        # Another client took the source over, or the container was created again.
        if not known or SOURCE_DETAIL not in exc.details:
            raise
    opening.refuse_empty()
    source = await opening.finder.claim(opening.found.files, refused=source)
    return await opening.sync(source).run(
        delete_vanished=delete_vanished, rebuild=rebuild, password=password
    )


async def plan_folder(
    client: FolderClient,
    container_id: str,
    folder: Path,
    root_name: str | None = None,
    on_progress: OnFolder | None = None,
    *,
    meta: Mapping[str, Any] | None = None,
    rebuild: bool = False,
    consent: SyncConsent = SyncConsent(),
) -> FolderPlan:
    """What ``sync_folder`` would do with the same arguments. Changes nothing."""
    opening = await _opened(
        client, container_id, folder, root_name, on_progress, meta or {}, consent
    )
    opening.refuse_empty()
    source = await opening.finder.preview(opening.found.files)
    return await opening.sync(source).plan(rebuild=rebuild)


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
    consent: SyncConsent,
) -> _OpenedFolder:
    root = root_name or name_of(folder)
    if not root or "/" in root:
        raise Invalid(
            f"'{root}' is not a valid root name for {folder}; choose one without a slash (--root NAME)"
        )
    found = await asyncio.to_thread(walk, folder)
    metas = await asyncio.to_thread(read_sidecars, found.files, flags)
    finder = SourceFinder(
        client, container_id, folder, root, is_name_given=root_name is not None, consent=consent
    )
    return _OpenedFolder(client, container_id, folder, found, metas, finder, consent, on_progress)


@dataclass(frozen=True, slots=True)
class _OpenedFolder:
    """A folder that was read, before its source is known."""

    client: FolderClient
    container_id: str
    folder: Path
    found: Walk
    metas: SidecarMetas
    finder: SourceFinder
    consent: SyncConsent
    on_progress: OnFolder | None

    def sync(self, source: FolderSource) -> _Sync:
        return _Sync(self, source)

    def refuse_empty(self) -> None:
        """``Invalid`` without a readable file: the folder of a mount is empty while nothing is mounted there."""
        found = self.found
        if any(file.readable for file in found.files):
            return
        skipped_files = len(found.skipped) + len(found.files)
        raise Invalid(
            f"{self.folder} contains no readable document "
            f"({skipped_files} skipped, {found.ignored} ignored by the defaults, .gitignore or .latentignore)",
            skipped=[f"{s.path}: {s.reason}" for s in found.skipped[:20]],
        )


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

    def __init__(self, opening: _OpenedFolder, source: FolderSource) -> None:
        found, metas = opening.found, opening.metas
        self._client = opening.client
        self._target = FolderTarget(opening.container_id, source.root, source.source_id)
        self._notice = source.notice
        self._found = found
        self._metas = metas
        self._consent = opening.consent
        self._announcer = FolderLister(self._client, self._target)
        self._files = {file.path: file for file in found.files}
        self._on_progress = opening.on_progress
        self._skips = _Skips()
        for skipped in found.skipped:
            self._skips.add(skipped.path, skipped.reason)
        for path, reason in metas.broken.items():
            self._skips.add(path, reason)

    async def run(
        self, *, delete_vanished: bool, rebuild: bool, password: str | None = None
    ) -> FolderReport:
        kept, withheld = self._kept() if delete_vanished else None, 0
        verdict = await self._announce(count=delete_vanished and kept is None)
        if verdict.vanished:
            if await self._may_delete(verdict):
                await self._announcer.delete(verdict)
            else:
                kept, withheld = _too_many(verdict), verdict.vanished
        if password is not None:  # a file that was refused for its encryption can be read now
            verdict.need += [one.path for one in verdict.refused]
        elif not rebuild:
            for one in verdict.refused:
                self._skips.add(one.path, f"{one.reason} ({AS_BEFORE} {one.job_id})")
        files_to_send = self._files_to_send(verdict, rebuild=rebuild)
        added = await self._upload(files_to_send, rebuild=rebuild, password=password)
        return FolderReport(
            root=self._target.root,
            files=len(self._files),
            ignored=self._found.ignored,
            ignored_paths=sorted(self._found.ignored_paths),
            unread=dict(self._found.unread.most_common()),
            checkouts=self._found.checkouts,
            unchanged=0 if rebuild else verdict.unchanged,
            open_jobs=[] if rebuild else verdict.open_jobs,
            added=added,
            deleted=verdict.deleted,
            delete_jobs=verdict.delete_jobs,
            skipped=self._skips.report(),
            kept=kept,
            withheld=withheld,
            notice=self._notice,
        )

    async def plan(self, *, rebuild: bool) -> FolderPlan:
        verdict = await self._announce(count=True)
        kept = self._kept()
        if kept is None and not self._consent.allows(verdict.vanished, verdict.documents):
            kept = _too_many(verdict)
        need = frozenset(file.path for file in self._files_to_send(verdict, rebuild=rebuild))
        return FolderPlan(
            root=self._target.root,
            files=[file for file in self._files.values() if self._sendable(file)],
            need=need,
            vanished=verdict.vanished,
            ignored=self._found.ignored,
            skipped=self._skips.report(),
            kept=kept,
            notice=self._notice,
            unread=dict(self._found.unread.most_common()),
            checkouts=self._found.checkouts,
        )

    async def _may_delete(self, verdict: ListingVerdict) -> bool:
        if self._consent.allows(verdict.vanished, verdict.documents):
            return True
        confirm = self._consent.confirm
        return confirm is not None and await confirm(
            f"{_deletions(verdict)}: their files are gone. Delete them?"
        )

    def _kept(self) -> str | None:
        return None if self._found.complete else "parts of the folder could not be read"

    async def _announce(self, *, count: bool) -> ListingVerdict:
        """Announce all files. Those that the server cannot decide are announced again with their hash."""
        digests = self._digests()
        listed = [listed_file(file, digests) for file in self._files.values()]
        verdict, done = ListingVerdict(), 0
        for part in parts(listed):
            await self._announcer.announce(part, verdict, count=count)
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
                known = replace(file, mtime_ns=recorded_time(file.mtime_ns))
                return listed_file(known, digests, await sha256_of(file.file))
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

    async def _upload(
        self, files: Sequence[FoundFile], *, rebuild: bool, password: str | None
    ) -> list[AddAnswer]:
        async def one(file: FoundFile) -> AddAnswer | None:
            uri = prefix_of(self._target.root) + file.path
            meta = self._metas.of(file.path)
            sending = FileUpload(file.file, uri, meta, rebuild, password)
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


def _too_many(verdict: ListingVerdict) -> str:
    return (
        f"{_deletions(verdict)}, which is more than an unattended sync may delete; --allow-deletions deletes them if "
        "their files are gone for good"
    )


def _deletions(verdict: ListingVerdict) -> str:
    return f"{verdict.vanished} of {verdict.documents} documents would be deleted"


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
    consent: SyncConsent = SyncConsent(),
    timeout_seconds: float = HOUR,
    on_folder: OnFolder | None = None,
    on_wait: OnWait | None = None,
) -> IndexReport:
    """Sync a folder and wait until its documents are searchable. ``TimedOut`` names the open jobs.

    It does not wait for deletions: vanished documents are invisible as soon as the folder is synced. An
    unchanged folder costs one call per 5,000 files.
    """
    report = await sync_folder(
        client, container_id, folder, root_name, on_folder, meta=meta, consent=consent
    )
    jobs = await client.wait(report.job_ids, on_wait, timeout_seconds=timeout_seconds)
    return IndexReport(folder=report, jobs=jobs)
