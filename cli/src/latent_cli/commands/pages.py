"""``latent pages``"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from latent_cli.commands.documents import any_identity, identity
from latent_cli.exits import FOUND
from latent_cli.jobs_output import finish_selected
from latent_cli.options import InContainer, Json, Wait, command_app
from latent_cli.output import amount, answers, brief, emit, notes, safe, size, table
from latent_cli.progress import ProgressBars
from latent_cli.session import ask
from latent_client import AsyncClient
from latent_client.pages import (
    ExtractionFile,
    PagePdfFile,
    PagesReport,
    export_extraction,
    export_page_pdf,
    export_pages,
)
from latent_core.domain.errors import Invalid
from latent_core.domain.pdf_status import (
    PdfState,
    PdfStatus,
    PdfTotals,
    SelectedDocument,
)
from latent_core.wire.pages import MAX_SELECTED
from latent_core.wire.understanding import FoundPage

app = command_app()

MISSING_SHOWN = 20


@app.callback()
def pages() -> None:
    """Find pages, export images, PDFs and extractions of pages, show which PDFs are processed, and process them."""


@app.command()
def export(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="DOC", help="Only these documents: id, source URI or path."),
    ] = None,
    container: Annotated[
        str | None,
        typer.Option("--container", "-c", help="The container; not needed for the PDF of an id."),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", help="Folder to write; created if missing; default: this one.")
    ] = Path(),
    documents: Annotated[
        list[str] | None,
        typer.Option("--document", "-d", help="The same as DOC; repeatable."),
    ] = None,
    page: Annotated[int | None, typer.Option("--page", min=1, help="The page, with --pdf.")] = None,
    pdf: Annotated[
        bool, typer.Option("--pdf", help="Write one page of a PDF as <doc_id>/pages/<number>.pdf.")
    ] = False,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            help="With --page: the file to write. Ending .pdf: the page's PDF; .json: its extraction.",
        ),
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option("--base-url", help="Address of the folder: pages.jsonl gets absolute uris."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write <doc_id>/pages/<number>.webp and <doc_id>/pages.jsonl for each document.

    Existing images are kept, so an interrupted export continues. Exit 4 if images are missing. With --page and --to it
    writes one page to a file and prints the hashes of what it is from.
    """
    chosen = [*(names or []), *(documents or [])]
    if to is not None:
        if page is None or len(chosen) != 1:
            raise Invalid("--to needs one document and --page")
        _export_page(container, chosen[0], page, to, as_json=as_json)
        return
    if pdf or page is not None:
        if not pdf or page is None or len(chosen) != 1:
            raise Invalid("a single-page PDF needs one document, --page and --pdf")
        if base_url is not None:
            raise Invalid("--base-url belongs to pages.jsonl; leave it out with --page and --pdf")
        _export_pdf(container, chosen[0], page, out, as_json=as_json)
        return
    if container is None:
        raise Invalid("name the container with -c")
    ids = [identity(container, name) for name in chosen]
    with ProgressBars() as bars:

        def on_progress(done: int, total: int, images: int) -> None:
            bars.set("documents", done, total)
            bars.set("pages", images, None)

        report = ask(
            lambda client: export_pages(client, container, out, ids, on_progress, base_url=base_url)
        )
    emit(report) if as_json else _show(report)
    if report.missing:
        raise typer.Exit(FOUND)


def _export_page(container: str | None, name: str, page: int, to: Path, *, as_json: bool) -> None:
    doc_id = any_identity(container, name)
    match to.suffix.lower():
        case ".pdf":
            _show_file(
                ask(lambda client: export_page_pdf(client, doc_id, page, Path(), file=to)),
                as_json=as_json,
            )
        case ".json":
            _show_file(
                ask(lambda client: export_extraction(client, doc_id, page, to)), as_json=as_json
            )
        case _:
            raise Invalid(f"'{to}' must end with .pdf or .json")


def _show_file(written: PagePdfFile | ExtractionFile, *, as_json: bool) -> None:
    if as_json:
        emit(written)
        return
    answers().print(safe(f"{written.file}: {size(written.bytes)}"))
    hashes = {k: v for k, v in written.model_dump().items() if k.endswith(("sha256", "hash")) and v}
    width = max(map(len, hashes))
    for name, value in hashes.items():
        answers().print(f"{name:{width}} {value}")


@app.command()
def find(
    container: InContainer,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="DOC", help="Only these documents: id, source URI or path."),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option("--text", help="Text of the page or of its extraction, in any case."),
    ] = None,
    page: Annotated[int | None, typer.Option("--page", min=1, help="Number of the page.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of pages.")] = 100,
    as_json: Json = False,
) -> None:
    """Find pages by a text in them or by their number, with the state of their extraction. Exit 4 if there is none."""
    if text is None and page is None:
        raise Invalid("give --text, --page or both")
    ids = [identity(container, name) for name in names or []]

    async def search(client: AsyncClient) -> list[FoundPage]:
        found: list[FoundPage] = []
        async for one in client.find_pages(container, text=text, page=page, doc_ids=ids):
            found.append(one)
            if len(found) == limit:
                break
        return found

    found = ask(search)
    if as_json:
        emit({"pages": found})
    else:
        columns = ("SOURCE", ">PAGE", ">VISUAL", "BY", "EXTRACTION", "IN", "ID", "EXCERPT")
        answers().print(table(columns, map(_found_row, found)))
    if not found:
        raise typer.Exit(FOUND)


def _found_row(one: FoundPage) -> tuple[object, ...]:
    return (
        one.source_uri.removeprefix("file:///"),
        one.page,
        one.visual_importance or "",
        one.visual_importance_by or "",
        one.extraction,
        ", ".join(one.found_in),
        one.doc_id,
        brief(" ".join(one.excerpt.split())),
    )


def _export_pdf(container: str | None, name: str, page: int, out: Path, *, as_json: bool) -> None:
    doc_id = any_identity(container, name)
    _show_file(ask(lambda client: export_page_pdf(client, doc_id, page, out)), as_json=as_json)


@app.command()
def status(
    container: Annotated[
        str | None,
        typer.Option("--container", "-c", help="The container; default: all that you own."),
    ] = None,
    states: Annotated[
        list[PdfState] | None,
        typer.Option("--status", help="Only PDFs in this state; repeatable."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show how many pages of each PDF are processed, and why others are not."""
    totals, found = ask(lambda client: _status(client, container, states or []))
    if as_json:
        emit({"totals": totals, "documents": found})
        return
    columns = ("SOURCE", "STATUS", ">PAGES", ">DONE", ">LEFT", ">JOB", "ID", "CAUSE")
    rows = (
        (
            one.source_uri.removeprefix("file:///"),
            one.status.value,
            one.total,
            one.processed,
            one.unprocessed,
            one.job_id or "",
            one.doc_id,
            one.cause or "",
        )
        for one in found
    )
    answers().print(table(columns, rows))
    done = f"{totals.pages_processed} of {amount(totals.pages_total, 'page')} processed"
    answers().print(f"{amount(totals.documents, 'PDF')}, {totals.failed} failed; {done}")


@app.command()
def process(
    container: InContainer,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="DOC", help="Ids, source URIs or paths.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All PDFs of the container that are not processed.")
    ] = False,
    wait: Wait = False,
    as_json: Json = False,
) -> None:
    """Process PDFs to the end: failed jobs run again, missing pages are drawn. Exit 4 if one is refused."""
    if everything == bool(names):
        raise Invalid("name the documents, or give --all")
    ids = [identity(container, name) for name in names or []]
    selected = ask(lambda client: _process(client, container, ids))
    finish_selected(selected, wait=wait, as_json=as_json, nothing="all of them are processed")


async def _status(
    client: AsyncClient, container: str | None, states: Sequence[PdfState]
) -> tuple[PdfTotals, list[PdfStatus]]:
    totals = await client.pdf_totals(container)
    return totals, [one async for one in client.pdf_status(container, states=states)]


async def _process(
    client: AsyncClient, container: str, ids: Sequence[UUID]
) -> list[SelectedDocument]:
    """What is done with each; without ``ids``, with all PDFs that are not processed."""
    if not ids:
        left = [state for state in PdfState if state is not PdfState.DRAWN]
        ids = [one.doc_id async for one in client.pdf_status(container, states=left)]
    selected: list[SelectedDocument] = []
    for start in range(0, len(ids), MAX_SELECTED):
        part = ids[start : start + MAX_SELECTED]
        selected += (await client.process_selected(container, part)).documents
    return selected


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
