"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Answer in JSON, for programs.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for the job; exit 4 when it fails.")]
InContainer = Annotated[str, typer.Option("--container", "-c", metavar="ID", help="The container.")]
Yes = Annotated[bool, typer.Option("--yes", help="Delete without asking.")]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", help="Default LLC_DATA_DIR, else ~/.latent.")
]
Port = Annotated[
    int | None, typer.Option("--port", help="Default LLC_PORT, else 7801; 0: a free one.")
]
Bind = Annotated[str | None, typer.Option("--bind", help="Default LLC_BIND, else 127.0.0.1.")]


def command_app() -> typer.Typer:
    """A command, or a group of them."""
    return typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)
