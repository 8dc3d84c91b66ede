"""How an agent is connected: the address, and per client the command and the entry of its configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fastapi import Request

from latent_core.domain.agent_clients import (
    AGENT_CLIENTS,
    MCP_PATH,
    ClientName,
    any_client_snippet,
    connect_command,
)
from latent_gateway.context import Gateway

OTHER: Final = "other"
"""Any other client of MCP over HTTP."""
PLACEHOLDER: Final = "YOUR_TOKEN"
CHOICES: Final = (
    *((name.value, AGENT_CLIENTS[name].title) for name in ClientName),
    (OTHER, "Other"),
)


@dataclass(frozen=True, slots=True)
class ClientPanel:
    key: str
    title: str
    snippet: str
    """What goes into ``file``, with the token or the placeholder."""
    file: str | None = None
    """None: it depends on the client."""
    connect: str | None = None
    """`latent connect`, which creates a token of its own; None: the person may not create tokens."""
    own_command: str | None = None


def mcp_address(request: Request, shared: Gateway) -> str:
    """As agents outside reach it."""
    base = shared.settings.public_url or str(request.base_url)
    return f"{base.rstrip('/')}{MCP_PATH}"


def panels(url: str, token: str, container_id: str | None) -> list[ClientPanel]:
    """One per client. ``container_id``: the container that `latent connect` is to name; None hides the command."""
    found = []
    for name, client in AGENT_CLIENTS.items():
        own = client.own_command(url, token) if client.own_command is not None else None
        command = connect_command(name, container_id) if container_id is not None else None
        found.append(
            ClientPanel(
                name.value, client.title, client.snippet(url, token), client.file, command, own
            )
        )
    return [*found, ClientPanel(OTHER, "Other", any_client_snippet(url, token))]


def chosen_client(key: str) -> str:
    """The client that is shown first."""
    return key if key in dict(CHOICES) else ClientName.CLAUDE_CODE.value
