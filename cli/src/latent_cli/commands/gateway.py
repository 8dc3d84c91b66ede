"""``latent gateway``"""

from __future__ import annotations

from latent_cli.banner import announcing
from latent_cli.options import Bind, Json, Port, command_app
from latent_cli.processes import overridden, run_gateway

app = command_app()


@app.command()
def gateway(port: Port = None, bind: Bind = None, as_json: Json = False) -> None:
    """Start only a gateway, on external servers.

    Needs LLC_POSTGRES_DSN, LLC_QDRANT_URL, LLC_S3_ENDPOINT and LLC_MCP_TOKEN; `latent up` needs none.
    """
    run_gateway(overridden(port=port, bind=bind), announcing(as_json=as_json))
