"""Progress bars on stderr. Nothing is drawn if stderr is not a terminal."""

from __future__ import annotations

from typing import Final, Self

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text
from typing_extensions import override

from latent_cli.output import notes, safe, size
from latent_client.folder import FolderProgress
from latent_client.waiting import OnWait, WaitProgress
from latent_core.domain.job import JobView

NOTE_CHARS: Final = 40
"""Of a path, its end."""
STAGES = {"list": "announced", "hash": "hashed", "upload": "sent"}


BYTES: Final = "bytes"
"""How the names of bars begin that count bytes."""


class RateColumn(ProgressColumn):
    """How many per second, over the last half minute."""

    @override
    def render(self, task: Task) -> Text:
        if not task.speed:
            return Text()
        rate = size(int(task.speed)) if _counts_bytes(task) else f"{task.speed:.3g}"
        return Text(f"{rate}/s", style="progress.data.speed")


class AmountColumn(MofNCompleteColumn):
    """How many of how many; bytes as people read them."""

    @override
    def render(self, task: Task) -> Text:
        if not _counts_bytes(task):
            return super().render(task)
        total = "?" if task.total is None else size(int(task.total))
        return Text(f"{size(int(task.completed))} of {total}", style="progress.download")


def _counts_bytes(task: Task) -> bool:
    return task.description.startswith(BYTES)


class ProgressBars:
    """A set of named bars. Each appears with its first value."""

    def __init__(self) -> None:
        console = notes()
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            AmountColumn(),
            RateColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", markup=False, style="dim"),
            console=console,
            disable=not console.is_terminal,
            redirect_stdout=False,  # answers go to stdout unchanged
        )
        self._tasks: dict[str, TaskID] = {}

    def set(self, name: str, done: int, total: int | None, note: str = "") -> None:
        """Move a bar. ``note`` says what was done last."""
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(safe(name), total=total, note="")
        shown = safe(note) if len(note) <= NOTE_CHARS else f"…{safe(note[1 - NOTE_CHARS :])}"
        self._progress.update(self._tasks[name], completed=done, total=total, note=shown)

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


class BackupBars(JobsBar):
    """Bars for the containers of a backup, their jobs and their bytes (``latent_client.whole_backup.OnBackup``)."""

    def container(self, container_id: str, done: int, total: int) -> None:
        self.set("containers", done, total, container_id)

    def jobs(self) -> OnWait:
        return self.show

    def bytes(self, done: int, total: int) -> None:
        self.set("bytes", done, total)


class ModelBar(ProgressBars):
    """The bytes of a model that have arrived, of all, and the current file."""

    def show(self, path: str, done: int, total: int) -> None:
        self.set("bytes", done, total, path)


class IngestBars(JobsBar):
    """Bars for the files of a folder, then for their jobs."""

    def show_folder(self, progress: FolderProgress) -> None:
        name = f"files {STAGES[progress.stage]}"
        self.set(name, progress.done, progress.total, progress.path or "")
