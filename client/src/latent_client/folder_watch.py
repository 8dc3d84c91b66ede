"""A folder kept in step: synced once, then whenever something in it changes.

The watch begins before the first sync, so that nothing is missed in between. Each change leads to a sync
of the whole folder, which costs one call for 5,000 files: what is right does not depend on the notices of
the operating system being complete. A gateway that is away is waited for.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel
from watchfiles import awatch

from latent_client.client import AsyncClient
from latent_client.folder import FolderReport, OnFolder, sync_folder
from latent_client.ignore import IGNORE_FILE, Tree
from latent_client.waiting import HOUR
from latent_core.domain.errors import Invalid, LatentError
from latent_core.domain.job import JobState, JobView

T = TypeVar("T")
MAX_JUDGED: Final = 1_000
"""Changes of one moment that are looked at for whether they are ignored; more are not."""


class WatchChange(StrEnum):
    """What a watch tells of."""

    SYNCED = "synced"
    """The folder was in step with the container, apart from jobs that are under way."""
    SENT = "sent"
    DELETED = "deleted"
    SKIPPED = "skipped"
    INDEXED = "indexed"
    """What was sent is searchable; ``count`` documents."""
    FAILED = "failed"
    UNREACHABLE = "away"
    """The gateway does not answer; it is asked again."""
    BACK = "back"
    TROUBLE = "trouble"
    """The folder cannot be synced as it is; it is tried again when it changes."""


class WatchEvent(BaseModel):
    change: WatchChange
    path: str | None = None
    """Relative to the folder."""
    message: str | None = None
    job_id: int | None = None
    count: int | None = None
    report: FolderReport | None = None
    """Of a sync."""


OnEvent = Callable[[WatchEvent], None]


@dataclass(frozen=True, slots=True)
class WatchTimings:
    """How a watch keeps time. Seconds, but for milliseconds."""

    debounce_ms: int = 1_600
    """Changes that follow each other are taken together, so long at most …"""
    quiet_ms: int = 100
    """… or until nothing has changed for so long."""
    tick_ms: int = 500
    first_pause: float = 1.0
    """Before a gateway that is away is asked again; doubled each time, up to …"""
    longest_pause: float = 30.0
    resync: float = 600.0
    """Without any notice the folder is synced all the same."""


@dataclass(frozen=True, slots=True)
class WatchTarget:
    """What is kept in step."""

    container_id: str
    folder: Path
    root_name: str | None = None
    meta: Mapping[str, Any] | None = None
    delete_vanished: bool = True


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

    Errors that concern the whole of it (no such container, a bad token, the folder is gone) are raised.
    """
    if not await asyncio.to_thread(watched.folder.is_dir):
        raise Invalid(f"{watched.folder} is not a folder; only folders are watched")
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
        """Ends when ``stop`` is set."""
        notices = awatch(
            self._root,
            watch_filter=None,
            debounce=self._pace.debounce_ms,
            step=self._pace.quiet_ms,
            rust_timeout=self._pace.tick_ms,
            yield_on_timeout=True,
            stop_event=stop,
            ignore_permission_denied=True,
        )
        try:
            async for changes in notices:
                self._watching.set()
                paths = [path for _, path in changes]
                concerns: bool = await asyncio.to_thread(self._concerns, paths)
                if concerns:
                    self._changed.set()
        except OSError as exc:
            raise Invalid(f"{self._watched.folder} cannot be watched: {exc}") from exc

    def _concerns(self, paths: Iterable[str]) -> bool:
        """Whether one of the paths may be a document, a sidecar or a rule; a doubt is a yes."""
        tree = Tree(self._root)
        for number, path in enumerate(paths):
            relative = os.path.relpath(path, self._root).replace(os.sep, "/")
            if number >= MAX_JUDGED or relative.rpartition("/")[2] == IGNORE_FILE:
                return True
            try:
                if relative != "." and not tree.ignores(relative):
                    return True
            except Invalid:  # a file of rules that cannot be read: the sync tells
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
                raise Invalid(f"{self._watched.folder} is gone; what stood in it stays searchable")
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
                )
            )
        except Invalid as exc:
            self._tell(WatchChange.TROUBLE, message=exc.message)
            return
        self._report(report)
        if report.added or (report.open_jobs and not self._following):
            task = asyncio.create_task(self._follow(report), name="follow")
            self._following.add(task)
            task.add_done_callback(self._following.discard)

    async def _follow(self, report: FolderReport) -> None:
        """Tell what became of the jobs, or why nobody knows."""
        try:
            jobs = await self._persistently(
                lambda: self._client.wait(report.job_ids, timeout_seconds=24 * HOUR)
            )
        except LatentError as exc:
            self._tell(
                WatchChange.TROUBLE, message=f"what became of the jobs is not known: {exc.message}"
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
        """Try again as long as the trouble passes by itself: the gateway restarts, or is asked too much."""
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
    return job.cause.message if job.cause else "no cause is known"
