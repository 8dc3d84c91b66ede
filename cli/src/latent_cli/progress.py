"""Progress bars on stderr. Nothing is drawn if stderr is not a terminal."""

from __future__ import annotations

from typing import Self

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from latent_cli.output import notes, safe
from latent_client.folder import FolderProgress
from latent_client.waiting import WaitProgress
from latent_core.domain.job import JobView

STAGES = {"list": "announced", "hash": "hashed", "upload": "sent"}


class ProgressBars:
    """A set of named bars. Each appears with its first value."""

    def __init__(self) -> None:
        console = notes()
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
            redirect_stdout=False,  # answers go to stdout unchanged
        )
        self._tasks: dict[str, TaskID] = {}

    def set(self, name: str, done: int, total: int | None) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(safe(name), total=total)
        self._progress.update(self._tasks[name], completed=done, total=total)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.end()

    def end(self) -> None:
        """Stop drawing and leave the bars on the screen."""
        self._progress.stop()


class JobsBar(ProgressBars):
    """Bars for awaited jobs and for the progress of running ones."""

    def show(self, progress: WaitProgress) -> None:
        self.set("jobs done", progress.done, progress.total)
        known = [job for job in progress.running if job.progress_total]
        if known:
            done = sum(job.progress_done for job in known)
            self.set("in running jobs", done, sum(job.progress_total or 0 for job in known))

    def show_job(self, job: JobView) -> None:
        """Show the steps of a single job."""
        self.set(job.progress_note or job.kind.value, job.progress_done, job.progress_total)


class IngestBars(JobsBar):
    """Bars for the files of a folder, then for their jobs."""

    def show_folder(self, progress: FolderProgress) -> None:
        self.set(f"files {STAGES[progress.stage]}", progress.done, progress.total)
