"""``latent mcp``"""

from __future__ import annotations

import os
import sys
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from latent_cli.mcp_bridge import TOKEN
from latent_cli.options import command_app
from latent_core.domain.web_address import is_loopback
from latent_core.settings import load_settings

app = command_app()


@app.command()
def mcp() -> None:
    """Serve MCP on stdin and stdout for agents that start a command.

    It forwards to the running gateway at LLC_URL, with the token in LLC_MCP_TOKEN or in the data directory.
    """
    parent = os.getppid()
    settings = load_settings()
    url = f"{settings.gateway_url}/mcp"
    environment = dict(os.environ)  # noqa: TID251 - of the process that this one becomes
    if settings.mcp_token is not None:
        environment[TOKEN] = settings.mcp_token.get_secret_value()
    arguments = [url, str(settings.data_dir / "token"), _proxy(url), str(parent)]
    # -P: the folder in which an agent starts us may hold modules with names of ours.
    command = [sys.executable, "-P", "-m", "latent_cli.mcp_bridge", *arguments]
    os.execve(sys.executable, command, environment)


def _proxy(url: str) -> str:
    """The proxy of the environment for this address; none for a loopback address."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_loopback(host) or proxy_bypass(host):
        return ""
    return getproxies().get(parts.scheme, "")
