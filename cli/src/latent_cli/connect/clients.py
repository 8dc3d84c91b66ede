"""The agents that `latent connect` knows: their files, and the entry that each one reads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

NAME: Final = "latent"
"""Of our entry among the MCP servers of a client."""
HOOK_SECONDS: Final = 5
HOOK_SOURCES: Final = "startup|clear|compact"
"""A resumed session has the notes already."""


class ClientName(StrEnum):
    CLAUDE_CODE = "claude-code"
    CODEX = "codex"
    CURSOR = "cursor"
    VSCODE = "vscode"
    GEMINI = "gemini"
    OPENCODE = "opencode"
    ZED = "zed"


@dataclass(frozen=True, slots=True)
class Machine:
    """Where this user's files are."""

    home: Path
    environment: Mapping[str, str]
    is_macos: bool = sys.platform == "darwin"

    def folder(self, variable: str, default: str) -> Path:
        """The folder that an environment variable names, else one of the home folder."""
        value = self.environment.get(variable)
        return Path(value) if value else self.home / default

    @property
    def config(self) -> Path:
        return self.folder("XDG_CONFIG_HOME", ".config")


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """``path`` leads to our entry in ``file``; ``entry`` makes it of the server's address and the token."""

    file: Callable[[Machine], Path]
    path: tuple[str, ...]
    entry: Callable[[str, str], dict[str, Any]]


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


def _claude_file(machine: Machine) -> Path:
    return machine.folder("CLAUDE_CONFIG_DIR", "") / ".claude.json"


def claude_settings(machine: Machine) -> Path:
    """The file with the hooks of Claude Code."""
    return machine.folder("CLAUDE_CONFIG_DIR", ".claude") / "settings.json"


def _codex_file(machine: Machine) -> Path:
    return machine.folder("CODEX_HOME", ".codex") / "config.toml"


def _cursor_file(machine: Machine) -> Path:
    return machine.home / ".cursor" / "mcp.json"


def _vscode_file(machine: Machine) -> Path:
    support = machine.home / "Library" / "Application Support"
    return (support if machine.is_macos else machine.config) / "Code" / "User" / "mcp.json"


def _gemini_file(machine: Machine) -> Path:
    return machine.home / ".gemini" / "settings.json"


def _opencode_file(machine: Machine) -> Path:
    """The file that exists, where opencode accepts two names."""
    folder = machine.config / "opencode"
    with_comments = folder / "opencode.jsonc"
    return with_comments if with_comments.exists() else folder / "opencode.json"


def _zed_file(machine: Machine) -> Path:
    config = machine.home / ".config" if machine.is_macos else machine.config
    return config / "zed" / "settings.json"


AGENTS: Final[Mapping[ClientName, AgentConfig]] = {
    ClientName.CLAUDE_CODE: AgentConfig(_claude_file, ("mcpServers", NAME), _http),
    ClientName.CODEX: AgentConfig(_codex_file, ("mcp_servers", NAME), _codex),
    ClientName.CURSOR: AgentConfig(_cursor_file, ("mcpServers", NAME), _plain),
    ClientName.VSCODE: AgentConfig(_vscode_file, ("servers", NAME), _http),
    ClientName.GEMINI: AgentConfig(_gemini_file, ("mcpServers", NAME), _gemini),
    ClientName.OPENCODE: AgentConfig(_opencode_file, ("mcp", NAME), _opencode),
    ClientName.ZED: AgentConfig(_zed_file, ("context_servers", NAME), _plain),
}


def start_hook(command: str) -> dict[str, Any]:
    """An item of ``hooks.SessionStart`` of Claude Code, which adds what the command prints to the session."""
    hook = {"type": "command", "command": command, "timeout": HOOK_SECONDS}
    return {"matcher": HOOK_SOURCES, "hooks": [hook]}
