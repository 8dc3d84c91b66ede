"""``latent drop-generated``"""

from __future__ import annotations

from typing import Annotated

import typer

from latent_cli.commands.documents import identity
from latent_cli.jobs_output import finish_jobs
from latent_cli.options import Json, Wait, command_app
from latent_cli.session import ask
from latent_core.domain.errors import Invalid
from latent_core.domain.generated import GeneratedGroup

app = command_app()


@app.command("drop-generated")
def drop_generated(
    container: Annotated[str, typer.Argument(metavar="CONTAINER")],
    group: Annotated[GeneratedGroup, typer.Argument(metavar="GROUP", help="What to remove.")],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="DOC", help="Ids, source URIs or paths.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Of all documents.")] = False,
    wait: Wait = False,
    as_json: Json = False,
) -> None:
    """Remove what a language model wrote about documents: summaries, extraction (of pages) or captions.

    The texts of the documents stay as they are. Stored answers of the model stay too, so that `latent extract` makes it
    again without a call.
    """
    if everything == bool(names):
        raise Invalid("name the documents, or give --all")
    ids = None if everything else [identity(container, name) for name in names or []]
    job_id = ask(lambda client: client.drop_generated(container, group, ids))
    finish_jobs([job_id], wait=wait, as_json=as_json)
