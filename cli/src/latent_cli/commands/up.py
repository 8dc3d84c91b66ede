"""``latent up``"""

from __future__ import annotations

from latent_cli.options import Bind, DataDir, Json, Port, command_app
from latent_cli.processes import announcing, overridden, run_up

app = command_app()


@app.command()
def up(
    data_dir: DataDir = None, port: Port = None, bind: Bind = None, as_json: Json = False
) -> None:
    """Start gateway and worker on embedded services, in one process.

    It runs until Ctrl-C. Logs go to stderr, as text on a terminal and otherwise as JSON (LLC_LOG_FORMAT).
    The address and the location of the token go to stdout.
    """
    run_up(overridden(data_dir=data_dir, port=port, bind=bind), announcing(as_json=as_json))
