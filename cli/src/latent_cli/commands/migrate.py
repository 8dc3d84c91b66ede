"""``latent migrate``"""

from __future__ import annotations

from latent_cli.options import DataDir, Json, command_app
from latent_cli.output import answers, emit
from latent_cli.processes import overridden, run_migrate

app = command_app()


@app.command()
def migrate(data_dir: DataDir = None, as_json: Json = False) -> None:
    """Bring the database to this release's schema.

    It migrates the database of LLC_POSTGRES_DSN, else the embedded one, which must not be in use. `latent up`
    also does this at start-up.
    """
    done = run_migrate(overridden(data_dir=data_dir))
    if as_json:
        emit(done)
        return
    what = f"applied {', '.join(done.applied)}" if done.applied else "nothing to do"
    answers().print(f"{done.database}: {what}")
