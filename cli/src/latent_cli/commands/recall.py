"""``latent recall``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latent_cli.options import DataDir, command_app
from latent_cli.recall import SECONDS, print_notes

app = command_app()


@app.command()
def recall(
    name: Annotated[str, typer.Argument(metavar="CLIENT", help="As in `latent connect`.")],
    data_dir: DataDir = None,
) -> None:
    """Print pinned and recent notes for the start of an agent's session.

    `latent connect claude-code --recall` adds it as a hook. At most 2 kB, marked as data; without a gateway, or
    after two seconds, nothing.
    """
    if data_dir is None:
        from latent_core.settings import load_settings

        data_dir = load_settings().data_dir
    print_notes(Path(data_dir).expanduser() / "connections" / f"{name}.json", SECONDS)
