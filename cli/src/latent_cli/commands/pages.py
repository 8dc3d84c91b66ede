"""``latent pages``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latent_cli.commands.documents import identity
from latent_cli.exits import FOUND
from latent_cli.options import InContainer, Json, command_app
from latent_cli.output import amount, answers, emit, notes, safe
from latent_cli.progress import ProgressBars
from latent_cli.session import ask
from latent_client.pages import PagesReport, export_pages

app = command_app()

MISSING_SHOWN = 20


@app.callback()
def pages() -> None:
    """Export the page images of documents."""


@app.command()
def export(
    container: InContainer,
    out: Annotated[Path, typer.Option("--out", help="Folder to write; created if missing.")],
    documents: Annotated[
        list[str] | None,
        typer.Option(
            "--document", "-d", help="Only this document: id, source URI or path; repeatable."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write <doc_id>/pages/<number>.webp and <doc_id>/pages.jsonl for each document.

    Existing images are kept, so an interrupted export continues. Exit 4 if images are missing.
    """
    ids = [identity(container, name) for name in documents or []]
    with ProgressBars() as bars:

        def on_progress(done: int, total: int, images: int) -> None:
            bars.set("documents", done, total)
            bars.set("pages", images, None)

        report = ask(lambda client: export_pages(client, container, out, ids, on_progress))
    emit(report) if as_json else _show(report)
    if report.missing:
        raise typer.Exit(FOUND)


def _show(report: PagesReport) -> None:
    done = f"{amount(report.pages, 'page')} of {amount(report.documents, 'document')}"
    answers().print(
        safe(f"{done} in {report.folder}: {report.written} written, {report.kept} kept")
    )
    for one in report.missing[:MISSING_SHOWN]:
        why = "still being rendered; export again later" if one.state == "pending" else one.cause
        message = f"{one.source_uri}: images are missing: {why or 'no renderer supports this type'}"
        notes().print(safe(message), soft_wrap=True)
    if len(report.missing) > MISSING_SHOWN:
        notes().print(f"{len(report.missing) - MISSING_SHOWN} more documents have missing images")
