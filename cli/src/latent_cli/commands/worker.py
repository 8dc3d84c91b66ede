"""``latent worker``"""

from __future__ import annotations

from latent_cli.options import Json, command_app
from latent_cli.output import emit
from latent_cli.processes import run_worker
from latent_core.settings import load_settings

app = command_app()


@app.command()
def worker(as_json: Json = False) -> None:
    """Start only a worker, on external servers.

    Needs LLC_POSTGRES_DSN, LLC_QDRANT_URL and LLC_S3_ENDPOINT; `latent up` needs none.
    """
    run_worker(load_settings())
    if as_json:
        emit({"ended": True})
