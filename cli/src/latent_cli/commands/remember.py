"""``latent remember``"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

import typer

from latent_cli.commands.token import expiry
from latent_cli.options import InContainer, Json, command_app
from latent_cli.output import answers, emit, moment, notes, safe
from latent_cli.session import ask
from latent_core.domain.errors import Invalid
from latent_core.wire.documents import MAX_WAIT_SECONDS, AddAnswer

app = command_app()

STDIN = "-"


@app.command()
def remember(
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="The note, in Markdown; - reads standard input.")
    ],
    container: InContainer,
    title: Annotated[str | None, typer.Option("--title", help="Its heading.")] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="Another text under the same name replaces it."),
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", help="Lifetime, such as 12h, 30d, 6w or 1y.")
    ] = None,
    pin: Annotated[
        bool, typer.Option("--pin", help="Sessions with `latent recall` start with it.")
    ] = False,
    supersedes: Annotated[
        UUID | None, typer.Option("--supersedes", help="Id of a document that it replaces.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Add a note to a container.

    Names up to three notes that are nearest in meaning.
    """
    content = sys.stdin.read() if text == STDIN else text
    if not content.strip():
        raise Invalid("the note is empty; give a text, or - to read standard input")
    until = None if expires is None else expiry(expires, datetime.now(UTC))
    added: AddAnswer = ask(
        lambda client: client.add(
            container,
            text=content,
            title=title,
            name=name,
            expires_at=until,
            supersedes=supersedes,
            meta={"pinned": True} if pin else None,
            wait_seconds=MAX_WAIT_SECONDS,
        )
    )
    if as_json:
        emit(added)
        return
    answers().print(safe(str(added.doc_id)))
    state = "searchable" if added.searchable else f"searchable when job {added.job_id} is done"
    notes().print(safe(f"version {added.note_version}, {state}"))
    if added.replaced is not None:
        notes().print(safe(f"the former text is kept as {added.replaced}"))
    for one in added.nearest:
        notes().print(safe(f"near: {one.title} ({one.doc_id}, {moment(one.written_at)})"))
