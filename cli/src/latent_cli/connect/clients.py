"""Where the agents that `latent connect` knows have their files on this machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from latent_core.domain.agent_clients import ClientName

HOOK_SECONDS: Final = 5
HOOK_SOURCES: Final = "startup|clear|compact"
"""A resumed session has the notes already."""


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


FILES: Final[Mapping[ClientName, Callable[[Machine], Path]]] = {
    ClientName.CLAUDE_CODE: _claude_file,
    ClientName.CODEX: _codex_file,
    ClientName.CURSOR: _cursor_file,
    ClientName.VSCODE: _vscode_file,
    ClientName.GEMINI: _gemini_file,
    ClientName.OPENCODE: _opencode_file,
    ClientName.ZED: _zed_file,
}


def start_hook(command: str) -> dict[str, Any]:
    """An item of ``hooks.SessionStart`` of Claude Code, which adds what the command prints to the session."""
    hook = {"type": "command", "command": command, "timeout": HOOK_SECONDS}
    return {"matcher": HOOK_SOURCES, "hooks": [hook]}
