"""Console output of jobs, and the exit codes of commands that start jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import typer
from rich.console import Console

from latent_cli.exits import FAILED, FOUND
from latent_cli.output import amount, answers, brief, emit, moment, notes, safe, size, table
from latent_cli.progress import JobsBar, ProgressBars
from latent_cli.session import ask
from latent_core.domain.job import (
    JobCounts,
    JobEmbedding,
    JobGroup,
    JobLanguageModels,
    JobState,
    JobView,
)
from latent_core.domain.pdf_status import Action, SelectedDocument
from latent_core.wire.operations import StatusAnswer

WAIT_SECONDS = 6 * 3600.0
NAMED_DOCUMENTS = 3
"""Of a warning that several documents have."""


def finish_jobs(job_ids: Sequence[int], *, wait: bool, as_json: bool) -> None:
    """Print the jobs that a command queued. With ``wait``, wait for them (exit 4 if one fails or is cancelled)."""
    if not wait:
        if as_json:
            emit({"job_ids": [str(job_id) for job_id in job_ids], "status": "queued"})
        else:
            answers().print(f"queued: {named(job_ids)}; `latent jobs watch ID` follows one")
        return
    with interruptible(lambda: continuing(job_ids)), JobsBar() as bar:
        jobs = ask(lambda client: client.wait(job_ids, bar.show, timeout_seconds=WAIT_SECONDS))
    if as_json:
        emit({"jobs": jobs})
    else:
        if done := [job.job_id for job in jobs if job.state is JobState.DONE]:
            answers().print(f"done: {named(done)}")
        for job in jobs:
            if job.result and "outcome" in job.result:
                answers().print(safe(str(job.result["outcome"])))
        show_failed(answers(), jobs)
    exit_for(jobs)


def finish_selected(
    selected: Sequence[SelectedDocument], *, wait: bool, as_json: bool, nothing: str
) -> None:
    """As ``finish_jobs``, for the jobs of selected documents. ``nothing``: why there may be none. Exit 4 if a document is
    refused."""
    refused = [one for one in selected if one.action is Action.REFUSED]
    for one in refused:
        notes().print(safe(f"refused: {one.doc_id}: {one.cause}"), soft_wrap=True)
    job_ids = [one.job_id for one in selected if one.job_id is not None]
    if job_ids or as_json:
        finish_jobs(job_ids, wait=wait, as_json=as_json)
    elif not refused:
        answers().print(f"nothing to do: {nothing}")
    if refused:
        raise typer.Exit(FOUND)


@contextmanager
def interruptible(remark: Callable[[], str], bars: ProgressBars | None = None) -> Iterator[None]:
    """On Ctrl-C, say what goes on without this command, and exit. ``bars`` end first: they would draw over it."""
    try:
        yield
    except KeyboardInterrupt:
        if bars is not None:
            bars.end()
        notes().print(f"latent: interrupted; {safe(remark())}", soft_wrap=True)
        raise typer.Exit(FAILED) from None


def continuing(job_ids: Sequence[int]) -> str:
    """That jobs go on."""
    verb = "continues" if len(job_ids) == 1 else "continue"
    follow = job_ids[0] if len(job_ids) == 1 else "ID"
    return f"{named(job_ids)} {verb}; `latent jobs watch {follow}` follows one"


def exit_for(jobs: Iterable[JobView]) -> None:
    """Exit with code 4 if a job failed or was cancelled on request.

    A job that a newer job of the same document replaced is not a failure.
    """
    if any(
        job.state is JobState.FAILED or (job.state is JobState.CANCELLED and job.cancel_requested)
        for job in jobs
    ):
        raise typer.Exit(FOUND)


def show_failed(console: Console, jobs: Sequence[JobView]) -> None:
    for job in jobs:
        if job.state is JobState.FAILED:
            cause = job.cause.message if job.cause else "unknown cause"
            console.print(safe(f"failed: {about(job)}: {cause} (job {job.job_id})"))
        elif job.state is JobState.CANCELLED:
            console.print(safe(f"cancelled: {about(job)} (job {job.job_id})"))
    for message, documents in _warnings(jobs).items():
        console.print(safe(f"warning: {_some(documents)}: {message}"))


def _warnings(jobs: Iterable[JobView]) -> dict[str, list[str]]:
    """The documents of each warning."""
    found: dict[str, list[str]] = {}
    for job in jobs:
        for warning in job.warnings:
            found.setdefault(warning.message, []).append(about(job))
    return found


def _some(documents: Sequence[str]) -> str:
    more = len(documents) - NAMED_DOCUMENTS
    return ", ".join(documents[:NAMED_DOCUMENTS]) + (f" and {more} more" if more > 0 else "")


def show_jobs(console: Console, jobs: Iterable[JobView]) -> None:
    columns = (
        ">JOB",
        "KIND",
        "STATE",
        "PROGRESS",
        ">TRIES",
        "CONTAINER",
        "ABOUT",
        "CREATED",
        "CAUSE",
    )
    console.print(table(columns, (_row(job) for job in jobs)))


def about(job: JobView) -> str:
    """The document, container or kind of a job, for display."""
    return (job.source_uri or job.container_id or job.kind.value).removeprefix("file:///")


def progress_of(job: JobView) -> str:
    total = "?" if job.progress_total is None else str(job.progress_total)
    counted = f"{job.progress_done}/{total}" if job.progress_done or job.progress_total else ""
    return " ".join(part for part in (counted, job.progress_note) if part)


def read_by_models(usage: JobLanguageModels) -> str:
    cost = f", cost {usage.cost:.4f}" if usage.cost else ""
    return (
        f"{amount(usage.calls, 'call')}, {usage.input_tokens:,} tokens read,"
        f" {usage.output_tokens:,} written{cost}"
    )


def sent(embedding: JobEmbedding) -> str:
    """Texts and tokens sent to a remote embedder, with the cost if a price is set."""
    cost = f", {embedding.cost:.4f} by LLC_EMBED_PRICE_PER_MILLION" if embedding.cost else ""
    return f"{amount(embedding.texts, 'text')}, {amount(embedding.tokens, 'token')}{cost}"


def named(job_ids: Sequence[int]) -> str:
    """Job numbers with consecutive ones joined."""
    runs: list[tuple[int, int]] = []
    for job_id in sorted(job_ids):
        if runs and job_id == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], job_id)
        else:
            runs.append((job_id, job_id))
    parts = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    return f"{'job' if len(job_ids) == 1 else 'jobs'} {', '.join(parts)}"


def _row(job: JobView) -> tuple[object, ...]:
    return (
        job.job_id,
        job.kind.value,
        job.state.value,
        progress_of(job),
        f"{job.attempts}/{job.max_attempts}",
        job.container_id,
        about(job) if job.source_uri else "",
        moment(job.created_at),
        brief(job.cause.message) if job.cause else "",
    )


def show_groups(console: Console, groups: Sequence[JobGroup]) -> None:
    """A table of groups, and the causes of those that failed."""
    columns = ("GROUP", "KIND", "CONTAINER", "STATE", "JOBS", "FOLLOWING", "BY", "CREATED")
    console.print(
        table(
            columns,
            (
                (
                    group.group_id,
                    group.kind.value,
                    group.container_id,
                    group.state.value,
                    _counted(group.jobs),
                    _counted(group.followers),
                    group.principal,
                    moment(group.created_at),
                )
                for group in groups
            ),
        )
    )
    for group in groups:
        if group.state is JobState.FAILED and group.cause is not None:
            console.print(safe(f"{group.group_id}: {group.cause.message}"))


def _counted(counts: JobCounts) -> str:
    """`3 done, 1 failed`."""
    return ", ".join(f"{number} {state}" for state, number in counts.model_dump().items() if number)


def show_status(console: Console, status: StatusAnswer) -> None:
    """Services, queue, causes, workers and disk, one per line."""
    for service, state in status.services.items():
        console.print(f"{service:<10} {state}")
    processes = status.gateway_processes
    console.print(f"{'gateway':<10} {processes.serving} of {processes.configured} processes serve")
    if (queue := status.queue) is not None:
        console.print(f"{'queue':<10} {_counted(queue.jobs) or 'empty'}")
        if queue.jobs.queued:
            console.print(
                f"{'queued':<10} {queue.in_line} in line, {queue.for_time} wait for a time, {queue.for_key} for a job on"
                " the same document"
            )
        for cause in queue.causes:
            console.print(safe(f"{'waiting':<10} {amount(cause.jobs, 'job')}: {cause.message}"))
    console.print(f"{'workers':<10} {status.connected_workers} connected")
    for worker in status.workers:
        console.print(safe(f"{'':<10} {worker.worker}: {amount(worker.running, 'job')}"))
    disk = status.disk
    console.print(f"{'disk':<10} {size(disk.free_bytes)} free of {size(disk.total_bytes)}")
    if status.backups is not None and status.backups.scheduled:
        console.print(
            f"{'backups':<10} {status.backups.scheduled} scheduled, {status.backups.failed} failed"
        )
