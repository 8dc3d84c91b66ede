"""``latent doctor``"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from latent_cli.exits import FOUND
from latent_cli.options import Json, command_app
from latent_cli.output import amount, answers, emit, safe
from latent_cli.session import ask
from latent_client.answers import Difference, DoctorReport

app = command_app()


@app.command()
def doctor(
    container: Annotated[
        str | None, typer.Option("--container", "-c", metavar="ID", help="Only this one.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare the stores and tell every difference.

    Changes nothing. Exit 4 when rows, vectors, keywords and blobs do not agree.
    """
    report = ask(lambda client: client.doctor(container))
    if as_json:
        emit(report)
    else:
        show(answers(), report)
    if not report.clean:
        raise typer.Exit(FOUND)


def show(console: Console, report: DoctorReport) -> None:
    for container_id, found in report.containers.items():
        counts = ", ".join(
            f"{count} {name.replace('_', ' ')}" for name, count in found.counts.items()
        )
        console.print(f"{container_id}: {counts}")
        _differences(console, found.differences)
    if report.stores:
        console.print("stores:")
        _differences(console, report.stores)
    for name, state in report.checks.items():
        console.print(safe(f"{name.replace('_', ' ')}: {state}"))
    total = len(report.stores) + sum(len(c.differences) for c in report.containers.values())
    console.print("everything agrees" if report.clean else amount(total, "difference"))


def _differences(console: Console, differences: list[Difference]) -> None:
    for difference in differences:
        console.print(safe(f"  {difference.kind} {difference.object}: {difference.message}"))
