"""``latent connect``"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated

import typer

from latent_cli.connect.clients import Machine
from latent_cli.connect.config_file import FileChange
from latent_cli.connect.connection import (
    MASKED,
    Connection,
    ConnectionRequest,
    ConnectionStore,
    chosen_container,
    connect as connect_client,
    is_current,
    plan,
)
from latent_cli.connect.masked import diff_of, texts_in
from latent_cli.interpreter import lasting
from latent_cli.options import Json, command_app
from latent_cli.output import answers, emit, notes, safe
from latent_cli.session import ask
from latent_client import AsyncClient
from latent_core.domain.agent_clients import ClientName
from latent_core.domain.errors import Invalid
from latent_core.settings import load_settings

app = command_app()

RECALLS = ClientName.CLAUDE_CODE


@app.command()
def connect(
    name: Annotated[ClientName, typer.Argument(metavar="CLIENT", help=", ".join(ClientName))],
    container: Annotated[
        str | None,
        typer.Option(
            "--container", "-c", metavar="ID", help="The container; default the only one."
        ),
    ] = None,
    recall: Annotated[
        bool | None,
        typer.Option(
            "--recall/--no-recall",
            help="Claude Code: start sessions with recent and pinned notes; default as before, else no.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the changes and make none.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Connect an agent to a container: write its configuration, with a token for this container only.

    Its searches and writes use the container unless they name one. `latent disconnect` restores the files.
    """
    if recall and name is not RECALLS:
        raise Invalid(f"--recall works with {RECALLS} only")
    settings = load_settings()
    machine, store = this_machine(), ConnectionStore(settings.data_dir)
    old = store.load(name)
    keeps_hook = old is not None and old.has_hook if recall is None else recall
    hook = recall_command(store.file(name)) if keeps_hook else None

    async def work(client: AsyncClient) -> tuple[ConnectionRequest, Connection | None]:
        chosen = await chosen_container(client, container or (old.container if old else None))
        request = ConnectionRequest(name, chosen, settings.gateway_url, hook)
        if dry_run:
            return request, None
        if await is_current(client, request, machine, old):
            return request, old
        return request, await connect_client(client, request, machine, store, old)

    request, connection = ask(work)
    if connection is None:
        changes = plan(request, machine, MASKED, old).changes
        ours = [entry.value for _, entry in request.entries(machine, MASKED)]
        _print_changes(changes, set(texts_in(ours)), as_json=as_json)
        return
    _print_connection(connection, is_new=connection is not old, as_json=as_json)


def this_machine() -> Machine:
    return Machine(Path.home(), os.environ)  # noqa: TID251 - names the folders of other programs


def recall_command(connection: Path) -> str:
    """What the start hook runs: ``latent recall`` without the imports of commands, which would take half of its time.

    Through uvx it would need more than its two seconds, and the network once uv's cache was cleaned.
    """
    python = lasting(Path(sys.executable), "the start hook of --recall")
    return shlex.join([str(python), "-P", "-m", "latent_cli.recall", str(connection.absolute())])


def _print_connection(connection: Connection, *, is_new: bool, as_json: bool) -> None:
    files = [str(file.path) for file in connection.files]
    if as_json:
        emit(
            {
                "client": connection.client,
                "container": connection.container,
                "files": files,
                "token_id": connection.token_id,
                "changed": is_new,
            }
        )
        return
    if not is_new:
        answers().print(
            safe(f"{connection.client} is connected to '{connection.container}' already")
        )
        return
    for file in connection.files:
        answers().print(safe(f"wrote {file.path}"))
        if file.entry.command is None and _in_checkout(file.path):
            notes().print(
                safe(f"{file.path} is in a git checkout and contains a token: do not commit it")
            )
    answers().print(
        safe(
            f"{connection.client} can search and add to '{connection.container}' (token {connection.token_id}). "
            "Restart it if it is running."
        )
    )


def _in_checkout(path: Path) -> bool:
    return any((folder / ".git").exists() for folder in Path(os.path.realpath(path)).parents)


def _print_changes(changes: Sequence[FileChange], shown: Collection[str], *, as_json: bool) -> None:
    """As diffs, in which of all texts only ``shown`` are to be read."""
    diffs = [(change.path, diff_of(change, shown)) for change in changes]
    if as_json:
        emit({"files": [{"path": str(path), "diff": diff} for path, diff in diffs]})
        return
    for _, diff in diffs:
        answers().print(safe(diff, lines=True), end="", soft_wrap=True)
    notes().print("Nothing was written, and no token was created.")
