"""``latent export``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latent_cli.exits import FOUND
from latent_cli.jobs_output import WAIT_SECONDS, show_failed
from latent_cli.options import Json, command_app
from latent_cli.output import amount, answers, emit, safe, size
from latent_cli.progress import JobsBar
from latent_cli.session import ask
from latent_client import AsyncClient
from latent_core.domain.job import JobState, JobView
from latent_core.wire.transfers import ArchiveAnswer

app = command_app()


@app.command()
def export(
    container: Annotated[str, typer.Argument(metavar="ID", help="The container.")],
    to: Annotated[Path, typer.Option("--to", help="File to write; replaced if it exists.")],
    vectors: Annotated[
        bool,
        typer.Option(
            "--vectors/--no-vectors", help="Include vectors; without them an import must embed."
        ),
    ] = True,
    blobs: Annotated[
        bool,
        typer.Option(
            "--blobs/--no-blobs", help="Include originals and page images, or only their hashes."
        ),
    ] = True,
    as_json: Json = False,
) -> None:
    """Export a container to one file.

    The file contains documents, chunks, pages, golden queries, vectors and blobs with their hashes. Any
    installation can import it. Exit 4 if the job fails or is cancelled.
    """
    with JobsBar() as bar:
        link, jobs = ask(lambda client: _made(client, bar, container, vectors=vectors, blobs=blobs))
        if link is not None:
            found = link
            ask(lambda client: _fetched(client, bar, found, to))
    if link is None:
        show_failed(answers(), jobs)
        raise typer.Exit(FOUND)  # cancelled, too: there is no file
    if as_json:
        emit({"file": str(to), "archive": link.archive})
    else:
        show_file(to, link)


async def _made(
    client: AsyncClient, bar: JobsBar, container: str, *, vectors: bool, blobs: bool
) -> tuple[ArchiveAnswer | None, list[JobView]]:
    answer = await client.export(container, vectors=vectors, blobs=blobs)
    if answer.url is not None and answer.archive is not None:
        return ArchiveAnswer(url=answer.url, archive=answer.archive), []
    jobs = await client.wait([answer.job_id or 0], bar.show, timeout_seconds=WAIT_SECONDS)
    (job,) = jobs
    if job.state is not JobState.DONE or job.result is None:
        return None, jobs
    return await client.exported(int(job.result["archive_id"])), jobs


async def _fetched(client: AsyncClient, bar: JobsBar, link: ArchiveAnswer, to: Path) -> None:
    await client.download(link, to, lambda done, total: bar.set("bytes", done, total))


def show_file(to: Path, link: ArchiveAnswer) -> None:
    """Print the content of a written archive."""
    totals = link.archive.totals
    held = f"{amount(totals.get('documents', 0), 'document')}, {amount(totals.get('chunks', 0), 'chunk')}"
    lacking = totals.get("lacking_blobs", 0)
    without = (
        f"; {amount(lacking, 'blob')} missing or damaged in the store; `latent doctor --deep` lists them"
        if lacking
        else ""
    )
    answers().print(safe(f"{to}: {held}, {size(link.archive.bytes)}{without}"))
