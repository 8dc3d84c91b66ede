"""``latent summarise``"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

import typer

from latent_cli.commands.documents import identity
from latent_cli.jobs_output import finish_jobs
from latent_cli.options import Json, Wait, command_app
from latent_cli.output import answers
from latent_cli.session import ask
from latent_client import AsyncClient
from latent_core.domain.ids import JobId

app = command_app()


@app.command("summarise")
def summarise(
    container: Annotated[str, typer.Argument(metavar="CONTAINER")],
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="DOC", help="Ids, source URIs or paths; default: all without."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also documents with a summary, and refused answers.")
    ] = False,
    wait: Wait = False,
    as_json: Json = False,
) -> None:
    """Have a language model write summaries of documents.

    The manifest names the model (summaries.provider). A summary of the same text stays. `latent documents summary` shows
    one, `latent understanding CONTAINER` how far they are.
    """
    ids = [identity(container, name) for name in names] if names else None
    job_ids = ask(lambda client: _summarise(client, container, ids, force=force))
    if job_ids or as_json:
        finish_jobs(job_ids, wait=wait, as_json=as_json)
    else:
        answers().print("nothing to do: all documents are summarised")


async def _summarise(
    client: AsyncClient, container: str, ids: Sequence[UUID] | None, *, force: bool
) -> list[JobId]:
    return [JobId(job.job_id) async for job in client.summarise(container, ids, force=force)]
