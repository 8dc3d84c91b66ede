"""MCP clients that others wrote, each installed below ``build/clients`` and started on our gateway and a scripted model.

``tests/mcp/clients/versions.toml`` names their packages. A driver there serves the libraries; the command lines are
configured here. Each runs in a home of its own without any variable of the tester's, and with a proxy that refuses:
nothing reaches more than 127.0.0.1.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support import REPOSITORY
from tests.support.harness import node_packages

DRIVERS: Final = REPOSITORY / "tests" / "mcp" / "clients"
CACHE: Final = REPOSITORY / "build" / "clients"
MIN_NODE: Final = 22
SECONDS: Final = 240.0
PROMPT: Final = "Follow the script."
_REFUSING_PROXY: Final = "http://127.0.0.1:9"
_COMPLETE: Final = ".packages"


@dataclass(frozen=True, slots=True)
class ClientTarget:
    """What a client is pointed at."""

    url: str
    """Of the MCP server."""
    token: str
    model_url: str
    connects: bool = False
    """`latent connect` writes the server into the client's own configuration: the harness names none."""


@dataclass(frozen=True, slots=True)
class ClientCommand:
    arguments: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AgentClient:
    name: str
    npm: tuple[str, ...]
    pypi: tuple[str, ...]
    start: str
    image: str
    ci: bool

    @property
    def place(self) -> Path:
        return CACHE / self.name

    def install(self) -> None:
        """Once; skips the test where npm, a registry or the network is missing."""
        packages = [*self.npm, *self.pypi]
        complete = self.place / _COMPLETE
        if complete.is_file() and complete.read_text("utf-8").split() == packages:
            return
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir(parents=True)
        if self.npm:
            node_packages.install(self.place, *self.npm)
        if self.pypi:
            _install_wheels(self.place, self.pypi)
        complete.write_text("\n".join(packages), "utf-8")

    def command(self, target: ClientTarget, home: Path) -> ClientCommand:
        driver = DRIVERS / self.start
        if driver.suffix == ".py":
            return ClientCommand((str(self.place / "bin" / "python"), str(driver)), {})
        if driver.suffix == ".mjs":
            node = node_packages.node(MIN_NODE)
            return ClientCommand((node, str(driver)), {"PACKAGES": str(self.place)})
        return COMMANDS[self.start](self.place / "node_modules", target, home)


def clients() -> list[AgentClient]:
    listed = tomllib.loads((DRIVERS / "versions.toml").read_text("utf-8"))
    return [
        AgentClient(
            name,
            tuple(one.get("npm", ())),
            tuple(one.get("pypi", ())),
            one["start"],
            one["image"],
            one.get("ci", False),
        )
        for name, one in listed.items()
    ]


async def run_client(
    client: AgentClient,
    target: ClientTarget,
    home: Path,
    connect: Callable[[], Awaitable[None]] | None = None,
) -> tuple[int, str]:
    """Exit code and output of a run until the script's end. ``connect`` is called before it starts."""
    command = client.command(target, home)
    if connect is not None:
        await connect()
    process = await asyncio.create_subprocess_exec(
        *command.arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**_environment(target, home), **command.environment},
        cwd=home,
    )
    try:
        async with asyncio.timeout(SECONDS):
            out, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode("utf-8", "replace")


def _install_wheels(place: Path, packages: tuple[str, ...]) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    pip = [str(place / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    options = ["--only-binary=:all:", "--retries=1", "--timeout=30"]
    done = subprocess.run([*pip, *options, *packages], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"{packages[0]} cannot be had from PyPI: {done.stderr.strip()[-300:]}")


def _environment(target: ClientTarget, home: Path) -> dict[str, str]:
    proxies = {f"{kind}_PROXY": _REFUSING_PROXY for kind in ("HTTP", "HTTPS", "ALL")}
    proxies["NO_PROXY"] = "127.0.0.1"
    return {
        "PATH": os.environ["PATH"],  # noqa: TID251 - where node and the client's own tools are
        "HOME": str(home),
        "TARGET_URL": target.url,
        "TARGET_TOKEN": target.token,
        "MODEL_URL": target.model_url,
        **proxies,
        **{name.lower(): value for name, value in proxies.items()},
    }


def _write(path: Path, content: str | dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")


def _program(modules: Path, pattern: str) -> str:
    """The binary that a package has for this kind of machine."""
    candidates = sorted(modules.glob(pattern))
    if not candidates:
        pytest.skip(f"the package has no program for this machine: {pattern}")
    candidates[0].chmod(0o755)
    return str(candidates[0])


def claude_code(modules: Path, target: ClientTarget, home: Path) -> ClientCommand:
    server = {
        "type": "http",
        "url": target.url,
        "headers": {"Authorization": "Bearer ${TARGET_TOKEN}"},
    }
    config = json.dumps({"mcpServers": {"latent": server}})
    given = () if target.connects else ("--mcp-config", config, "--strict-mcp-config")
    options = (*given, "--allowedTools", "mcp__latent", "--max-turns", "20")
    return ClientCommand(
        (
            _program(modules, "@anthropic-ai/claude-code-linux-*/claude"),
            *("-p", PROMPT, "--model", "claude-sonnet-4-5", *options),
        ),
        {
            "ANTHROPIC_BASE_URL": target.model_url,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_TELEMETRY": "1",
            "ENABLE_TOOL_SEARCH": "false",
            "MCP_CONNECTION_NONBLOCKING": "false",
        },
    )


CODEX_CONFIG: Final = """
model = "scripted"
model_provider = "scripted"
check_for_update_on_startup = false
approval_policy = "never"
sandbox_mode = "read-only"
[analytics]
enabled = false
[otel]
exporter = "none"
[model_providers.scripted]
name = "scripted"
base_url = "{model_url}/v1"
wire_api = "responses"
env_key = "MODEL_KEY"
"""
CODEX_SERVER: Final = """[mcp_servers.latent]
url = "{url}"
bearer_token_env_var = "TARGET_TOKEN"
default_tools_approval_mode = "approve"
"""


def codex(modules: Path, target: ClientTarget, home: Path) -> ClientCommand:
    config = CODEX_CONFIG.format(model_url=target.model_url)
    server = CODEX_SERVER.format(url=target.url)
    _write(home / ".codex" / "config.toml", config + ("" if target.connects else server))
    program = _program(modules, "@openai/codex-linux-*/vendor/*/bin/codex")
    approval = ("-c", 'mcp_servers.latent.default_tools_approval_mode="approve"')
    return ClientCommand(
        (program, "exec", "--skip-git-repo-check", *(approval if target.connects else ()), PROMPT),
        {"MODEL_KEY": "none"},
    )


def gemini_cli(modules: Path, target: ClientTarget, home: Path) -> ClientCommand:
    server = {
        "httpUrl": target.url,
        "headers": {"Authorization": "Bearer $TARGET_TOKEN"},
        "trust": True,
    }
    settings = {
        "mcpServers": {} if target.connects else {"latent": server},
        "telemetry": {"enabled": False},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
        "security": {
            "auth": {"selectedType": "gemini-api-key"},
            "folderTrust": {"enabled": False},
        },
    }
    _write(home / ".gemini" / "settings.json", settings)
    program = str(modules / "@google" / "gemini-cli" / "bundle" / "gemini.js")
    approval = ("--approval-mode", "yolo") if target.connects else ()
    options = ("-m", "gemini-2.5-flash", "--skip-trust", *approval)
    return ClientCommand(
        (node_packages.node(20), program, *options, "-p", PROMPT),
        {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": target.model_url},
    )


def opencode(modules: Path, target: ClientTarget, home: Path) -> ClientCommand:
    model = {
        "name": "scripted",
        "attachment": True,
        "tool_call": True,
        "modalities": {"input": ["text", "image"], "output": ["text"]},
        "limit": {"context": 200_000, "output": 8_000},
    }
    provider = {
        "npm": "@ai-sdk/anthropic",
        "name": "scripted",
        "options": {"baseURL": f"{target.model_url}/v1", "apiKey": "none"},
        "models": {"scripted": model},
    }
    server = {
        "type": "remote",
        "url": target.url,
        "headers": {"Authorization": "Bearer {env:TARGET_TOKEN}"},
        "oauth": False,
    }
    config = {
        "model": "scripted/scripted",
        "small_model": "scripted/scripted",
        "autoupdate": False,
        "share": "disabled",
        "enabled_providers": ["scripted"],
        "provider": {"scripted": provider},
        "mcp": {} if target.connects else {"latent": server},
        "permission": "allow",
    }
    _write(home / "opencode.json", config)
    return ClientCommand(
        (_program(modules, "opencode-linux-*/bin/opencode"), "run", PROMPT),
        {
            "OPENCODE_CONFIG": str(home / "opencode.json"),
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
        },
    )


COMMANDS: Final[Mapping[str, Callable[[Path, ClientTarget, Path], ClientCommand]]] = {
    "claude_code": claude_code,
    "codex": codex,
    "gemini_cli": gemini_cli,
    "opencode": opencode,
}
