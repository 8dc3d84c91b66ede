"""``latent restore``"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from latent_cli.exits import FOUND
from latent_cli.options import Json, command_app
from latent_cli.output import amount, answers, emit, safe
from latent_cli.progress import BackupBars
from latent_cli.session import ask
from latent_client.whole_backup import restore_all

app = command_app()


@app.callback()
def restore() -> None:
    """Restore a backup of a whole installation."""


@app.command(name="all")
def all_(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder from `latent backup all --to`.")
    ],
    skip_existing: Annotated[
        bool, typer.Option("--skip-existing", help="Restore only containers that are missing here.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Restore every container, the tokens, the saved searches and the audit log.

    Every file is verified first. Tokens of the old installation are valid again. Exit 4 if a container could not be
    restored.
    """
    with BackupBars() as bars:
        restored = ask(
            lambda client: restore_all(client, folder, bars, skip_existing=skip_existing)
        )
    if as_json:
        emit(asdict(restored))
    else:
        answers().print(
            safe(
                f"restored: {amount(len(restored.containers), 'container')}, "
                f"{amount(restored.tokens, 'token')}, "
                f"{amount(restored.saved_searches, 'saved search')}, "
                f"{amount(restored.audit, 'line')} of the audit log"
            )
        )
        if restored.sources:
            folders = amount(restored.sources, "folder")
            answers().print(f"{folders} of this computer can be synced again without a question")
        for container_id in restored.skipped:
            answers().print(safe(f"skipped: {container_id} exists here"))
        for container_id, cause in restored.failed.items():
            answers().print(safe(f"failed: {container_id}: {cause}"))
    if restored.failed:
        raise typer.Exit(FOUND)
