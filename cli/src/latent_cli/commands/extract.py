"""``latent extract``"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

import typer

from latent_cli.commands.documents import identity
from latent_cli.jobs_output import finish_selected
from latent_cli.options import Json, Wait, command_app
from latent_cli.session import ask
from latent_client import AsyncClient
from latent_core.domain.errors import Invalid
from latent_core.domain.pdf_status import SelectedDocument
from latent_core.wire.pages import MAX_SELECTED
from latent_core.wire.understanding import MAX_PAGES

app = command_app()


@app.command("extract")
def extract(
    container: Annotated[str, typer.Argument(metavar="CONTAINER")],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="DOC", help="Ids, source URIs or paths.")
    ] = None,
    everything: Annotated[
        bool,
        typer.Option("--all", help="All documents with pages that are not extracted, or stale."),
    ] = False,
    pages: Annotated[
        str | None,
        typer.Option("--pages", help="Only these pages, such as 3-7 or 1,4,9-12."),
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also pages that are extracted, and refused answers."),
    ] = False,
    wait: Wait = False,
    as_json: Json = False,
) -> None:
    """Have a language model describe pages of documents.

    The manifest names the model (extraction.provider). Pages that today's prompt and model have described stay. Each page
    ends as done or with its own cause: `latent understanding CONTAINER` lists them. Exit 4 if a document is refused.
    """
    if everything == bool(names):
        raise Invalid("name the documents, or give --all")
    numbers = None if pages is None else page_numbers(pages)
    ids = [identity(container, name) for name in names or []]
    selected = ask(lambda client: _extract(client, container, ids, numbers, force=force))
    finish_selected(selected, wait=wait, as_json=as_json, nothing="all pages are extracted")


def page_numbers(text: str) -> list[int]:
    """``3-7`` or ``1,4,9-12`` as numbers. ``Invalid``."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise Invalid(f"--pages: '{part.strip()}' is no page and no range such as 3-7")
        begin, end = int(first), int(last or first)
        if not 1 <= begin <= end:
            raise Invalid(f"--pages: '{part.strip()}': pages count from 1, and a range goes up")
        if end - begin >= MAX_PAGES or len(found) > MAX_PAGES:
            raise Invalid(f"--pages: at most {MAX_PAGES} pages")
        found.update(range(begin, end + 1))
    return sorted(found)


async def _extract(
    client: AsyncClient,
    container: str,
    ids: Sequence[UUID],
    pages: Sequence[int] | None,
    *,
    force: bool,
) -> list[SelectedDocument]:
    """What is done with each; without ``ids``, with all documents that have something to extract."""
    if not ids:
        ids = [
            one.doc_id
            async for one in client.understanding(container)
            if (e := one.extraction) is not None and (force or e.unprocessed or e.stale or e.failed)
        ]
    selected: list[SelectedDocument] = []
    for start in range(0, len(ids), MAX_SELECTED):
        part = ids[start : start + MAX_SELECTED]
        answer = await client.extract(container, part, pages=pages, force=force)
        selected += answer.documents
    return selected
