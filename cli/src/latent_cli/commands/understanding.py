"""``latent understanding``"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from latent_cli.options import Json, command_app
from latent_cli.output import amount, answers, emit, table
from latent_cli.session import ask
from latent_client import AsyncClient
from latent_core.domain.understanding import (
    DocumentUnderstanding,
    ModelUse,
    UnderstandingTotals,
)

app = command_app()


@app.command("understanding")
def understanding(
    container: Annotated[str, typer.Argument(metavar="CONTAINER")], as_json: Json = False
) -> None:
    """Show how far summaries and page extractions are, and what they cost.

    Stale: made by another model, prompt or version of the form than today's; `latent extract CONTAINER --all` makes them
    again.
    """
    totals, found = ask(lambda client: _status(client, container))
    if as_json:
        emit({"totals": totals, "documents": found})
        return
    columns = (
        *("SOURCE", ">PAGES", ">DONE", ">FAILED", ">STALE", ">LEFT", ">JOB", "SUMMARY"),
        *(">TOKENS", ">COST", "ID", "CAUSE"),
    )
    answers().print(table(columns, map(_row, found)))
    for line in _lines(totals):
        answers().print(line)


async def _status(
    client: AsyncClient, container: str
) -> tuple[UnderstandingTotals, list[DocumentUnderstanding]]:
    totals = await client.understanding_totals(container)
    return totals, [one async for one in client.understanding(container)]


def _row(one: DocumentUnderstanding) -> tuple[object, ...]:
    pages, summary = one.extraction, one.summary
    uses: list[ModelUse] = [summary, *([pages] if pages is not None else [])]
    causes = [cause for cause in (pages and pages.cause, summary.cause) if cause]
    return (
        one.source_uri.removeprefix("file:///"),
        *(("",) * 6 if pages is None else _pages(one)),
        f"{summary.state.value}{' (stale)' if summary.stale else ''}",
        sum(use.input_tokens + use.output_tokens for use in uses),
        f"{sum(use.cost for use in uses):.4f}",
        one.doc_id,
        "; ".join(causes),
    )


def _pages(one: DocumentUnderstanding) -> tuple[object, ...]:
    pages = one.extraction
    if pages is None:
        return ()
    counts = (pages.total, pages.processed, pages.failed, pages.stale, pages.unprocessed)
    return (*counts, pages.job_id or "")


def _lines(totals: UnderstandingTotals) -> Iterator[str]:
    pages, summaries = totals.extraction, totals.summaries
    yield (
        f"extraction ({totals.extraction_model or 'off'}): {pages.processed} of {amount(pages.total, 'page')} of "
        f"{amount(pages.documents, 'document')}, {pages.failed} failed, {pages.stale} stale"
    )
    yield (
        f"summaries ({totals.summary_model or 'off'}): {summaries.done} of {amount(summaries.documents, 'document')}, "
        f"{summaries.failed} failed, {summaries.skipped} skipped, {summaries.stale} stale"
    )
    for use in totals.usage:
        tokens = amount(use.input_tokens + use.output_tokens, "token")
        yield f"{use.purpose} by {use.model}: {amount(use.calls, 'call')}, {tokens}, cost {use.cost:.4f}"
