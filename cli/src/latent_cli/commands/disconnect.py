"""``latent disconnect``"""

from __future__ import annotations

from typing import Annotated

import typer

from latent_cli.connect.connection import ConnectionStore, disconnect as disconnect_client
from latent_cli.options import Json, command_app
from latent_cli.output import answers, emit, safe
from latent_cli.session import ask
from latent_core.domain.agent_clients import ClientName
from latent_core.settings import load_settings

app = command_app()


@app.command()
def disconnect(
    name: Annotated[ClientName, typer.Argument(metavar="CLIENT", help=", ".join(ClientName))],
    as_json: Json = False,
) -> None:
    """Undo `latent connect`: restore the agent's files and revoke its token.

    A file that was edited since then loses only our entry.
    """
    store = ConnectionStore(load_settings().data_dir)
    old = store.load(name)
    if old is not None:
        ask(lambda client: disconnect_client(client, store, old))
    files = [] if old is None else [str(file.path) for file in old.files]
    if as_json:
        emit({"client": name, "files": files, "changed": old is not None})
        return
    for file in files:
        answers().print(safe(f"restored {file}"))
    message = (
        "is not connected" if old is None else f"is disconnected; token {old.token_id} is revoked"
    )
    answers().print(safe(f"{name} {message}"))
