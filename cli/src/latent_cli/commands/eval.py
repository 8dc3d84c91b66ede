"""``latent eval``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latent_cli.eval_output import show
from latent_cli.exits import FAILED
from latent_cli.jobs_output import WAIT_SECONDS
from latent_cli.options import Json, command_app, search_mode
from latent_cli.output import emit
from latent_cli.progress import JobsBar
from latent_cli.session import ask
from latent_client import AsyncClient
from latent_core.domain.errors import Invalid, LatentError
from latent_core.domain.job import JobState, JobView
from latent_core.eval.datasets import read_golden, read_judged
from latent_core.wire.evaluation import EvalReport, EvalRequest

app = command_app()

GOLDEN = Path("golden_queries.json")


@app.command("eval")
def evaluate(
    container: Annotated[str, typer.Argument(metavar="CONTAINER")],
    dataset: Annotated[
        Path | None,
        typer.Option("--dataset", help="Judged set in BEIR layout, or a file of golden queries."),
    ] = None,
    modes: Annotated[
        str | None,
        typer.Option("--modes", help="Modes such as semantic,lexical; default: the container's."),
    ] = None,
    save: Annotated[
        bool, typer.Option("--save", help="Compare later runs with this one even if a gate fails.")
    ] = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="Compare with the last run and save nothing.")
    ] = False,
    suggest: Annotated[
        bool, typer.Option("--suggest", help="Also try other fusions and weights.")
    ] = False,
    rounds: Annotated[
        int,
        typer.Option("--rounds", min=1, max=10, help="Timed runs per query; the shortest counts."),
    ] = 3,
    export: Annotated[
        Path | None, typer.Option("--export", help="Write the report to this file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure retrieval quality with golden queries or a judged set.

    Without --dataset it uses ./golden_queries.json if present, else the container's golden queries (latent golden). It
    compares with the last baseline: nDCG@10 may fall by 2 %, p95 latency may rise by 20 %. If all gates pass, this run
    is the next baseline. Exit 1 if a gate fails.
    """
    request = _request(dataset, modes, save=save, compare=compare, suggest=suggest, rounds=rounds)
    with JobsBar() as bar:
        job = ask(lambda client: _evaluated(client, container, request, bar))
    report = _report(job)
    if export is not None:
        _write(export, report)
    if as_json:
        emit(report)
    else:
        show(report)
    if not report.passed:
        raise typer.Exit(FAILED)


def _request(
    dataset: Path | None,
    modes: str | None,
    *,
    save: bool,
    compare: bool,
    suggest: bool,
    rounds: int,
) -> EvalRequest:
    if save and compare:
        raise Invalid("--save and --compare exclude each other; give only one")
    if dataset is None and GOLDEN.is_file():
        dataset = GOLDEN
    folder = dataset is not None and dataset.is_dir()
    return EvalRequest(
        golden=read_golden(dataset) if dataset is not None and not folder else None,
        judged=read_judged(dataset) if dataset is not None and folder else [],
        modes=[search_mode(name) for name in (modes or "").split(",") if name.strip()],
        save=save,
        compare=compare,
        suggest=suggest,
        rounds=rounds,
    )


def _write(file: Path, report: EvalReport) -> None:
    try:
        file.write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")
    except OSError as exc:
        raise Invalid(f"{file} cannot be written: {exc.strerror}") from exc


async def _evaluated(
    client: AsyncClient, container: str, request: EvalRequest, bar: JobsBar
) -> JobView:
    queued = await client.evaluate(container, request)
    (job,) = await client.wait([queued.job_id], bar.show, timeout_seconds=WAIT_SECONDS)
    return job


def _report(job: JobView) -> EvalReport:
    if job.state is not JobState.DONE or job.result is None:
        why = job.cause.message if job.cause else f"the job was {job.state.value}"
        raise _NotMeasured(f"the evaluation produced no report: {why} (job {job.job_id})")
    return EvalReport.model_validate(job.result)


class _NotMeasured(LatentError):
    """The job produced no report."""
