"""Keeps a container in step with a folder: syncs once, then again after each change.

The watch starts before the first sync, so no change is missed in between. Each change syncs the whole
folder, which costs one call per 5,000 files. The result is therefore correct even if the operating system
loses notifications. If the gateway is unreachable, the watch waits and retries.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from latent_client.client import AsyncClient
from latent_client.folder import FolderReport, OnFolder, SyncConsent, sync_folder
from latent_client.folder_changes import limit_reason, notified, polled, polling_reason
from latent_client.ignore import Tree
from latent_client.waiting import HOUR
from latent_core.domain.errors import Invalid, LatentError
from latent_core.domain.ignore import RULE_FILES
from latent_core.domain.job import JobState, JobView

T = TypeVar("T")
MAX_JUDGED: Final = 1_000
"""Changes of one batch that are checked against the ignore rules. A larger batch always causes a sync."""


class WatchChange(StrEnum):
    """What an event of a watch reports."""

    SYNCED = "synced"
    """Folder and container agree, except for running jobs."""
    SENT = "sent"
    DELETED = "deleted"
    SKIPPED = "skipped"
    INDEXED = "indexed"
    """``count`` sent documents are searchable."""
    FAILED = "failed"
    UNREACHABLE = "away"
    """The gateway does not answer. The watch retries."""
    BACK = "back"
    POLLING = "polling"
    """Changes are noticed by reading the folder again, and why."""
    TROUBLE = "trouble"
    """The folder cannot be synced. The watch retries when it changes."""


class WatchEvent(BaseModel):
    change: WatchChange
    path: str | None = None
    """Relative to the folder."""
    message: str | None = None
    job_id: int | None = None
    count: int | None = None
    report: FolderReport | None = None
    """Report of the sync, for ``synced``."""


OnEvent = Callable[[WatchEvent], None]


@dataclass(frozen=True, slots=True)
class WatchTimings:
    """Intervals of a watch, in seconds unless the name ends in ``_ms``."""

    debounce_ms: int = 1_600
    """Changes are collected into one batch for at most this time …"""
    quiet_ms: int = 100
    """… or until nothing has changed for this time."""
    tick_ms: int = 500
    poll_seconds: float = 5.0
    """Between two readings of a folder whose changes are not notified."""
    first_pause: float = 1.0
    """Before the first retry when the gateway is unreachable; doubled each time, up to …"""
    longest_pause: float = 30.0
    resync: float = 600.0
    """Interval of syncs without any notification."""


@dataclass(frozen=True, slots=True)
class WatchTarget:
    """A folder and the container that it is synced to."""

    container_id: str
    folder: Path
    root_name: str | None = None
    meta: Mapping[str, Any] | None = None
    delete_vanished: bool = True
    consent: SyncConsent = field(default_factory=SyncConsent)


async def watch_folder(
    client: AsyncClient,
    watched: WatchTarget,
    on_event: OnEvent,
    stop: asyncio.Event,
    *,
    on_progress: OnFolder | None = None,
    pace: WatchTimings = WatchTimings(),
) -> None:
    """Keep ``watched`` in step until ``stop`` is set.

    Raises errors that no retry can fix: an unknown container, an invalid token, a missing folder.
    """
    if not await asyncio.to_thread(watched.folder.is_dir):
        raise Invalid(f"{watched.folder} is not a folder; only a folder can be watched")
    await _Watch(client, watched, on_event, on_progress, pace).run(stop)


class _Watch:
    def __init__(
        self,
        client: AsyncClient,
        watched: WatchTarget,
        on_event: OnEvent,
        on_progress: OnFolder | None,
        pace: WatchTimings,
    ) -> None:
        self._client = client
        self._watched = watched
        self._root = watched.folder.resolve()
        self._on_event = on_event
        self._on_progress = on_progress
        self._pace = pace
        self._watching = asyncio.Event()
        self._changed = asyncio.Event()
        self._following: set[asyncio.Task[None]] = set()
        self._skipped: dict[str, str] = {}
        self._kept: str | None = None
        self._first = True
        self._deletions: deque[tuple[float, int]] = deque()
        """When a sync deleted how many documents, within the last hour."""

    async def run(self, stop: asyncio.Event) -> None:
        looking = asyncio.create_task(self._look(stop), name="watch")
        working = asyncio.create_task(self._work(), name="sync")
        tasks = {looking, working}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*tasks, *self._following):
                task.cancel()
            await asyncio.gather(*tasks, *self._following, return_exceptions=True)
        for task in done:
            task.result()

    async def _look(self, stop: asyncio.Event) -> None:
        """Set ``_changed`` after each relevant change, until ``stop`` is set."""
        reason = await asyncio.to_thread(polling_reason, self._root)
        if reason is None:
            reason = await self._follow_notices(stop)
        if reason is None:
            return
        self._tell(
            WatchChange.POLLING,
            message=f"every {self._pace.poll_seconds:.0f} s or less often, since {reason}",
        )
        async for changed in polled(self._root, stop, seconds=self._pace.poll_seconds):
            if changed:
                self._changed.set()
            self._watching.set()

    async def _follow_notices(self, stop: asyncio.Event) -> str | None:
        """Until ``stop`` is set; or the reason why notifications are not possible."""
        notices = notified(
            self._root,
            stop,
            debounce_ms=self._pace.debounce_ms,
            quiet_ms=self._pace.quiet_ms,
            tick_ms=self._pace.tick_ms,
        )
        try:
            async for paths in notices:
                self._watching.set()
                concerns: bool = await asyncio.to_thread(self._concerns, paths)
                if concerns:
                    self._changed.set()
        except (OSError, RuntimeError) as exc:
            reason = limit_reason(exc)
            if reason is None:
                raise Invalid(f"{self._watched.folder} cannot be watched: {exc}") from exc
            return reason
        return None

    def _concerns(self, paths: Iterable[str]) -> bool:
        """Whether one of the paths may be a document, a sidecar or a rule file. True if that is uncertain."""
        tree = Tree(self._root)
        for number, path in enumerate(paths):
            relative = os.path.relpath(path, self._root).replace(os.sep, "/")
            if number >= MAX_JUDGED or relative.rpartition("/")[2] in RULE_FILES:
                return True
            try:
                if relative != "." and not tree.ignores(relative):
                    return True
            except Invalid:  # an unreadable rule file: the sync reports it
                return True
        return False

    async def _work(self) -> None:
        await self._watching.wait()
        self._changed.set()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pace.resync):
                    await self._changed.wait()
            self._changed.clear()
            if not await asyncio.to_thread(self._root.is_dir):
                raise Invalid(
                    f"{self._watched.folder} no longer exists; its documents stay searchable"
                )
            await self._sync()

    async def _sync(self) -> None:
        watched = self._watched
        try:
            report = await self._persistently(
                lambda: sync_folder(
                    self._client,
                    watched.container_id,
                    watched.folder,
                    watched.root_name,
                    self._on_progress,
                    watched.delete_vanished,
                    meta=watched.meta,
                    consent=self._consent(),
                )
            )
        except Invalid as exc:
            self._tell(WatchChange.TROUBLE, message=exc.message)
            return
        self._report(report)
        if report.deleted:
            self._deletions.append((time.monotonic(), len(report.deleted)))
        if report.added or (report.open_jobs and not self._following):
            task = asyncio.create_task(self._follow(report), name="follow")
            self._following.add(task)
            task.add_done_callback(self._following.discard)

    def _consent(self) -> SyncConsent:
        """A large deletion takes a while: what several syncs delete within an hour is judged together. What was
        withheld stays so until its files are back or the watch is started again."""
        is_withheld = self._kept is not None
        while self._deletions and not is_withheld:
            if time.monotonic() - self._deletions[0][0] < HOUR:
                break
            self._deletions.popleft()
        before = sum(count for _, count in self._deletions)
        return replace(self._watched.consent, deleted_before=before)

    async def _follow(self, report: FolderReport) -> None:
        """Report the outcome of the jobs, or why it is unknown."""
        try:
            jobs = await self._persistently(
                lambda: self._client.wait(report.job_ids, timeout_seconds=24 * HOUR)
            )
        except LatentError as exc:
            self._tell(
                WatchChange.TROUBLE, message=f"the outcome of the jobs is unknown: {exc.message}"
            )
            return
        for job in jobs:
            if job.state is not JobState.DONE:
                self._tell(
                    WatchChange.FAILED, path=self._path(job), message=_why(job), job_id=job.job_id
                )
        done = sum(job.state is JobState.DONE for job in jobs)
        if done:
            self._tell(WatchChange.INDEXED, count=done)

    async def _persistently(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Retry while the error is transient: the gateway restarts or limits the rate."""
        pause, reported = self._pace.first_pause, False
        while True:
            try:
                result = await work()
            except LatentError as exc:
                if not exc.transient:
                    raise
                if not reported:
                    self._tell(WatchChange.UNREACHABLE, message=exc.message)
                reported = True
            else:
                if reported:
                    self._tell(WatchChange.BACK)
                return result
            await asyncio.sleep(pause)
            pause = min(2 * pause, self._pace.longest_pause)

    def _report(self, report: FolderReport) -> None:
        prefix = f"file:///{report.root}/"
        if not self._first:
            for added in report.added:
                path = added.source_uri.removeprefix(prefix)
                self._tell(WatchChange.SENT, path=path, job_id=added.job_id)
            for uri in report.deleted:
                self._tell(WatchChange.DELETED, path=uri.removeprefix(prefix))
        skipped = {one.path: one.reason for one in report.skipped}
        for path, reason in skipped.items():
            if self._skipped.get(path) != reason:
                self._tell(WatchChange.SKIPPED, path=path, message=reason)
        if report.kept and report.kept != self._kept:
            self._tell(WatchChange.TROUBLE, message=f"nothing is deleted: {report.kept}")
        self._skipped, self._kept = skipped, report.kept
        if self._first or report.added or report.deleted:
            self._tell(WatchChange.SYNCED, report=report)
        self._first = False

    def _path(self, job: JobView) -> str | None:
        uri = job.source_uri or ""
        return uri.removeprefix("file:///").partition("/")[2] or None

    def _tell(self, change: WatchChange, **more: Any) -> None:
        self._on_event(WatchEvent(change=change, **more))


def _why(job: JobView) -> str:
    if job.state is JobState.CANCELLED:
        return "the job was cancelled"
    return job.cause.message if job.cause else "unknown cause"
