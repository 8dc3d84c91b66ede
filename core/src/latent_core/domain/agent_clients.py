"""The agents that Latent can connect: where each one keeps its MCP servers, and the entry that it reads.

`latent connect` writes these entries; the console shows them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from latent_core.domain.token import Scope

MCP_PATH: Final = "/mcp"
"""Of the gateway, where agents reach it."""
NAME: Final = "latent"
"""Of our entry among the MCP servers of a client."""
AGENT_SCOPES: Final = (Scope.READ, Scope.WRITE)
"""Of the token of an agent: it searches, and adds to a container."""


class ClientName(StrEnum):
    CLAUDE_CODE = "claude-code"
    CODEX = "codex"
    CURSOR = "cursor"
    VSCODE = "vscode"
    GEMINI = "gemini"
    OPENCODE = "opencode"
    ZED = "zed"


class ConfigFormat(StrEnum):
    JSON = "json"
    TOML = "toml"


@dataclass(frozen=True, slots=True)
class AgentClient:
    """``path`` leads to our entry in the file; ``entry`` makes it of the address of ``/mcp`` and the token."""

    title: str
    file: str
    """As people on Linux write it; other systems and variables may move it."""
    path: tuple[str, ...]
    entry: Callable[[str, str], dict[str, Any]]
    format: ConfigFormat = ConfigFormat.JSON
    own_command: Callable[[str, str], str] | None = None
    """The command of the client itself that writes its entry, made of the address and the token."""

    def snippet(self, url: str, token: str) -> str:
        """The entry with all that is around it, as its file has it."""
        entry = self.entry(url, token)
        if self.format is ConfigFormat.TOML:
            return "\n".join(table_lines(self.path, entry)) + "\n"
        nested: dict[str, Any] = entry
        for key in reversed(self.path):
            nested = {key: nested}
        return json.dumps(nested, indent=2, ensure_ascii=False) + "\n"


def _authorization(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _http(url: str, token: str) -> dict[str, Any]:
    return {"type": "http", "url": url, "headers": _authorization(token)}


def _plain(url: str, token: str) -> dict[str, Any]:
    return {"url": url, "headers": _authorization(token)}


def _codex(url: str, token: str) -> dict[str, Any]:
    return {"url": url, "http_headers": _authorization(token)}


def _gemini(url: str, token: str) -> dict[str, Any]:
    return {"httpUrl": url, "headers": _authorization(token)}


def _opencode(url: str, token: str) -> dict[str, Any]:
    headers = _authorization(token)
    return {"type": "remote", "url": url, "headers": headers, "oauth": False, "enabled": True}


def _claude_command(url: str, token: str) -> str:
    return f'claude mcp add --transport http {NAME} {url} --header "Authorization: Bearer {token}"'


AGENT_CLIENTS: Final[Mapping[ClientName, AgentClient]] = {
    ClientName.CLAUDE_CODE: AgentClient(
        "Claude Code",
        "~/.claude.json",
        ("mcpServers", NAME),
        _http,
        own_command=_claude_command,
    ),
    ClientName.CODEX: AgentClient(
        "Codex", "~/.codex/config.toml", ("mcp_servers", NAME), _codex, ConfigFormat.TOML
    ),
    ClientName.CURSOR: AgentClient("Cursor", "~/.cursor/mcp.json", ("mcpServers", NAME), _plain),
    ClientName.VSCODE: AgentClient(
        "VS Code", "~/.config/Code/User/mcp.json", ("servers", NAME), _http
    ),
    ClientName.GEMINI: AgentClient(
        "Gemini CLI", "~/.gemini/settings.json", ("mcpServers", NAME), _gemini
    ),
    ClientName.OPENCODE: AgentClient(
        "opencode", "~/.config/opencode/opencode.json", ("mcp", NAME), _opencode
    ),
    ClientName.ZED: AgentClient(
        "Zed", "~/.config/zed/settings.json", ("context_servers", NAME), _plain
    ),
}


def connect_command(client: ClientName, container_id: str) -> str:
    """The command that writes the client's file, with a token for this container."""
    return f"latent connect {client} --container {container_id}"


def agent_principal(client: ClientName) -> str:
    """Whose token `latent connect` creates."""
    return f"agent:{client}"


def any_client_snippet(url: str, token: str) -> str:
    """What most other clients of MCP over HTTP read."""
    return AGENT_CLIENTS[ClientName.CURSOR].snippet(url, token)


def table_lines(path: Sequence[str], value: Mapping[str, Any]) -> list[str]:
    """A table of TOML; its values are texts, numbers, and tables of these."""
    return [f"[{'.'.join(path)}]", *(f"{key} = {_toml(one)}" for key, one in value.items())]


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + " }"
    return json.dumps(value)
