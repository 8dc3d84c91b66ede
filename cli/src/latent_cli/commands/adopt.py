"""``latent adopt``"""

from __future__ import annotations

from latent_cli.options import DataDir, Json, command_app
from latent_cli.output import answers, emit
from latent_cli.processes import overridden, run_adopt

app = command_app()


@app.command()
def adopt(data_dir: DataDir = None, as_json: Json = False) -> None:
    """Make this database the one that may write to the installation's collections and bucket.

    Needed after a dump was restored into another database, or when a server lost the installation's marker. The
    database that held the data before stops writing and removing; stop its processes first.
    """
    done = run_adopt(overridden(data_dir=data_dir))
    if as_json:
        emit(done)
        return
    answers().print(f"installation {done.installation} now belongs to database {done.holder}")
