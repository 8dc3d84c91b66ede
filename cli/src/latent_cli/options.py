"""Options that several commands share, and their Typer app."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latent_core.domain.errors import Invalid
from latent_core.domain.retrieval import OFFERED_MODES, SearchMode

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for the job; exit 4 if it fails.")]
InContainer = Annotated[str, typer.Option("--container", "-c", metavar="ID", help="The container.")]
Yes = Annotated[bool, typer.Option("--yes", help="Confirm the deletion.")]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", help="Default LLC_DATA_DIR, else ~/.latent.")
]
Port = Annotated[
    int | None, typer.Option("--port", help="Default LLC_PORT, else 7801; 0 uses any free port.")
]
Bind = Annotated[str | None, typer.Option("--bind", help="Default LLC_BIND, else 127.0.0.1.")]


def command_app() -> typer.Typer:
    """A Typer app for a command or a group of commands."""
    return typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)


def search_mode(name: str) -> SearchMode:
    """The mode of that name; ``Invalid`` lists those that this version supports."""
    for mode in OFFERED_MODES:
        if mode.value == name.strip():
            return mode
    raise Invalid(f"unknown mode '{name.strip()}'; choose from {', '.join(OFFERED_MODES)}")
