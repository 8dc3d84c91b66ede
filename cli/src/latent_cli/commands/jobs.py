"""``latent jobs``"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final

import typer

from latent_cli.jobs_output import (
    about,
    exit_for,
    progress_of,
    read_by_models,
    sent,
    show_failed,
    show_groups,
    show_jobs,
    show_status,
)
from latent_cli.options import Json, command_app
from latent_cli.output import amount, answers, emit, moment, notes, safe
from latent_cli.progress import JobsBar
from latent_cli.session import ask
from latent_client import AsyncClient
from latent_client.streams import JobNews
from latent_core.domain.errors import Invalid
from latent_core.domain.job import INTERNAL_KINDS, JobGroup, JobKind, JobState, JobView

app = command_app()

MAX_READ: Final = 5_000
"""Jobs that one list reads, where most of them are internal."""

JobId = Annotated[int, typer.Argument(metavar="JOB", min=1)]
JobIds = Annotated[list[int], typer.Argument(metavar="JOB", min=1)]


@app.callback()
def jobs() -> None:
    """List, show, watch, cancel and requeue jobs."""


@app.command("list")
def list_jobs(
    container: Annotated[
        str | None, typer.Option("--container", "-c", metavar="ID", help="Only this container.")
    ] = None,
    states: Annotated[
        list[JobState] | None, typer.Option("--status", help="Only jobs in this state; repeatable.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of jobs.")] = 50,
    internal: Annotated[
        bool,
        typer.Option(
            "--internal", help="Also jobs that follow from others: render, dedup, purge and such."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """List jobs, newest first."""
    kinds = frozenset(JobKind) if internal else frozenset(JobKind) - INTERNAL_KINDS
    found, hidden = ask(lambda client: _some(client, container, states or [], kinds, limit))
    if as_json:
        emit({"jobs": found})
        return
    show_jobs(answers(), found)
    failed = sum(job.state is JobState.FAILED for job in hidden)
    if failed:
        notes().print(f"{amount(failed, 'internal job')} failed; --internal lists them")


@app.command()
def groups(
    container: Annotated[
        str | None, typer.Option("--container", "-c", metavar="ID", help="Only this container.")
    ] = None,
    states: Annotated[
        list[JobState] | None,
        typer.Option("--status", help="Only groups with a job in this state; repeatable."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of groups.")] = 50,
    as_json: Json = False,
) -> None:
    """List what people requested, newest first, each with the numbers of its jobs and of those that follow."""

    async def some(client: AsyncClient) -> list[JobGroup]:
        found: list[JobGroup] = []
        async for group in client.job_groups(container_id=container, states=states or []):
            found.append(group)
            if len(found) == limit:
                break
        return found

    found = ask(some)
    if as_json:
        emit({"groups": found})
    else:
        show_groups(answers(), found)


@app.command()
def queue(as_json: Json = False) -> None:
    """Show the queue of all containers, why jobs wait, the services, workers and the disk."""
    found = ask(lambda client: client.status())
    if as_json:
        emit(found)
    else:
        show_status(answers(), found)


@app.command()
def show(job_id: JobId, as_json: Json = False) -> None:
    """Show state, progress, attempts and cause of a job."""
    job = ask(lambda client: client.job(job_id))
    if as_json:
        emit({"job": job})
    else:
        _show(job)


@app.command()
def watch(job_id: JobId, as_json: Json = False) -> None:
    """Follow a job to its end; exit 4 if it fails.

    With --json, print one event per line.
    """
    with JobsBar() as bar:
        last = ask(lambda client: _follow(client, job_id, bar, as_json=as_json))
    if last is not None:
        if not as_json:
            show_failed(answers(), [last])
        exit_for([last])


@app.command()
def cancel(job_ids: JobIds, as_json: Json = False) -> None:
    """Cancel queued jobs at once and running jobs at their next step."""
    _each(job_ids, lambda client, job_id: client.cancel(job_id), as_json=as_json)


@app.command()
def requeue(
    job_ids: Annotated[list[int] | None, typer.Argument(metavar="[JOB]...", min=1)] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Requeue all failed jobs of --container.")
    ] = False,
    container: Annotated[
        str | None, typer.Option("--container", "-c", metavar="ID", help="Container for --failed.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run failed or cancelled jobs again from the beginning."""
    if failed == bool(job_ids) or failed != (container is not None):
        raise Invalid("give job numbers, or --failed with --container ID")
    if container is None:
        _each(job_ids or [], lambda client, job_id: client.requeue(job_id), as_json=as_json)
    else:
        _all_failed(container, as_json=as_json)


def _all_failed(container: str, *, as_json: bool) -> None:
    requeued = ask(lambda client: client.requeue_failed(container))
    if as_json:
        job_ids = [str(job_id) for job_id in requeued.job_ids]
        emit({"job_ids": job_ids, "left": requeued.left, "remaining": requeued.remaining})
        return
    line = f"{amount(len(requeued.job_ids), 'job')} requeued"
    line += f"; {requeued.left} unchanged" if requeued.left else ""
    if requeued.remaining:
        why = "; ".join(issue.message for issue in requeued.issues)
        line += f"; {requeued.remaining} remain ({why}); run the same command again later"
    answers().print(line)


Change = Callable[[AsyncClient, int], Coroutine[Any, Any, JobView]]


def _each(job_ids: list[int], change: Change, *, as_json: bool) -> None:
    async def work(client: AsyncClient) -> list[JobView]:
        return [await change(client, job_id) for job_id in job_ids]

    changed = ask(work)
    if as_json:
        emit({"jobs": changed})
    else:
        show_jobs(answers(), changed)


async def _some(
    client: AsyncClient,
    container: str | None,
    states: list[JobState],
    kinds: frozenset[JobKind],
    limit: int,
) -> tuple[list[JobView], list[JobView]]:
    """The newest jobs of these kinds, and those of others that were read meanwhile."""
    found: list[JobView] = []
    others: list[JobView] = []
    async for job in client.jobs(container_id=container, states=states):
        (found if job.kind in kinds else others).append(job)
        if len(found) == limit or len(found) + len(others) == MAX_READ:
            break
    return found, others


async def _follow(
    client: AsyncClient, job_id: int, bar: JobsBar, *, as_json: bool
) -> JobView | None:
    last: JobView | None = None
    async for news in client.events(job_id):
        last = news.job or last
        if last is not None:
            bar.show_job(last)
        if as_json:
            emit(news, line=True)
        elif news.id is not None:
            answers().print(safe(_line(news)))
    return last


def _line(news: JobNews) -> str:
    details = " ".join(f"{name}={value}" for name, value in news.details.items())
    return " ".join(part for part in (moment(news.at), news.event, details) if part)


def _format_result(result: dict[str, Any]) -> str:
    """The simple values of a result. Lists and objects appear only with --json."""
    plain = {n: v for n, v in result.items() if not isinstance(v, dict | list)}
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in plain.items())


def _show(job: JobView) -> None:
    lines = {
        "job": f"{job.job_id} ({job.kind.value})",
        "about": about(job),
        "container": job.container_id,
        "state": job.state.value + (" (cancel requested)" if job.cancel_requested else ""),
        "progress": progress_of(job),
        "time left": f"{job.eta_seconds:.0f} s" if job.eta_seconds is not None else "",
        "attempts": f"{job.attempts} of {job.max_attempts}",
        "created": moment(job.created_at),
        "started": moment(job.started_at),
        "finished": moment(job.finished_at),
        "embedding": sent(job.embedding) if job.embedding else "",
        "models": read_by_models(job.language_models) if job.language_models else "",
        "result": _format_result(job.result or {}),
        "cause": f"{job.cause.message} ({job.cause.code.value})" if job.cause else "",
    }
    console = answers()
    for name, value in lines.items():
        if value:
            console.print(f"{name:<10} {safe(value)}")
    for warning in job.warnings:
        console.print(f"{'warning':<10} {safe(warning.message)}")
