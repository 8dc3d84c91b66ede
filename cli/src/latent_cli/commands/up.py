"""``latent up``"""

from __future__ import annotations

from typing import Annotated

import typer

from latent_cli.banner import announcing, is_quiet, screen, starting
from latent_cli.options import Bind, DataDir, Json, Port, command_app
from latent_cli.processes import overridden, run_up

app = command_app()


@app.command()
def up(
    data_dir: DataDir = None,
    port: Port = None,
    bind: Bind = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show the log on the terminal, too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Start gateway and worker on embedded services, in one process.

    It runs until Ctrl-C. It prints the address, a one-time link to the console, and where its data is. The log is in
    log/latent.log of the data directory; a terminal shows only warnings. Without a terminal the log goes to stderr,
    too, as JSON (LLC_LOG_FORMAT).
    """
    settings = overridden(data_dir=data_dir, port=port, bind=bind)
    quiet = is_quiet(as_json=as_json, verbose=verbose)
    if quiet:
        starting(settings)
    announce = announcing(as_json=True) if as_json else screen(settings)
    run_up(settings, announce, quiet=quiet)
