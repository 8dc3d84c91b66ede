"""``latent ingest``"""

from __future__ import annotations

from typing import Annotated

import typer

from latent_cli.ingest_shown import show_report
from latent_cli.ingesting import Ingestion, IngestReport, plan
from latent_cli.jobs_shown import WAIT_SECONDS, exit_for
from latent_cli.options import InContainer, Json, command_app
from latent_cli.output import answers, emit
from latent_cli.progress import IngestBars
from latent_cli.session import ask

app = command_app()


@app.command()
def ingest(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH", help="Files, folders, or http(s) addresses.")
    ],
    container: InContainer,
    uri: Annotated[
        str | None, typer.Option("--uri", help="Identity of a single file; default file:///<name>.")
    ] = None,
    root: Annotated[
        str | None, typer.Option("--root", help="Name of a folder's root; default the folder's.")
    ] = None,
    keep_vanished: Annotated[
        bool, typer.Option("--keep-vanished", help="Keep documents whose files are gone.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the jobs; exit 4 when one fails.")
    ] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, help="Seconds to wait at most.")
    ] = WAIT_SECONDS,
    as_json: Json = False,
) -> None:
    """Bring files and folders into a container.

    A folder becomes the documents below file:///<its name>/: what is new or changed is sent, and
    what vanished from it is deleted. A .latentignore in gitignore syntax leaves files out.
    """
    sources = plan(paths, uri=uri, root=root)
    with IngestBars() as bars:
        ingestion = Ingestion(container, bars, delete_vanished=not keep_vanished)
        report: IngestReport = ask(
            lambda client: ingestion.run(client, sources, timeout if wait else None)
        )
    if as_json:
        emit(report)
    else:
        show_report(answers(), report)
    exit_for(report.jobs)
