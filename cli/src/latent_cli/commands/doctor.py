"""``latent doctor``"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from latent_cli.exits import FOUND
from latent_cli.options import Json, command_app
from latent_cli.output import amount, answers, emit, safe
from latent_cli.session import ask
from latent_core.domain.findings import DoctorReport, StoreDifference

app = command_app()


@app.command()
def doctor(
    container: Annotated[
        str | None, typer.Option("--container", "-c", metavar="ID", help="Only this container.")
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Repair differences and report the repairs.")
    ] = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also read all blobs and compare their hashes.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compare the stores and report every difference.

    Without --repair it changes nothing. Exit 4 if differences between rows, vectors, keywords and blobs remain.
    It runs at half speed so that other requests continue. Some repairs queue jobs and are complete when these end.
    """
    report = ask(lambda client: client.doctor(container, repair=repair, deep=deep))
    if as_json:
        emit(report)
    else:
        show(answers(), report)
    repaired = bool(report.repairs) and all(one.done for one in report.repairs)
    if not report.clean and not repaired:
        raise typer.Exit(FOUND)


def show(console: Console, report: DoctorReport) -> None:
    for container_id, found in report.containers.items():
        counts = ", ".join(
            f"{count} {name.replace('_', ' ')}" for name, count in found.counts.items()
        )
        console.print(f"{container_id}: {counts}")
        _differences(console, found.differences)
        for note in found.notes:
            console.print(safe(f"  note: {note.kind} {note.object}: {note.message}"))
    if report.stores:
        console.print("stores:")
        _differences(console, report.stores)
    for note in report.notes:
        console.print(safe(f"note: {note.kind} {note.object}: {note.message}"))
    for name, state in report.checks.items():
        console.print(safe(f"{name.replace('_', ' ')}: {state}"))
    for one in report.repairs:
        what = one.repair if one.done else "not repaired"
        console.print(safe(f"{what}: {one.kind} {one.object}: {one.message}"))
    total = len(report.stores) + sum(len(c.differences) for c in report.containers.values())
    console.print("everything agrees" if report.clean else amount(total, "difference"))


def _differences(console: Console, differences: list[StoreDifference]) -> None:
    for difference in differences:
        mended = f" (--repair: {difference.repair})" if difference.repair != "none" else ""
        console.print(
            safe(f"  {difference.kind} {difference.object}: {difference.message}{mended}")
        )
