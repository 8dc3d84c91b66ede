"""`latent connect` and `latent disconnect`: the files of each agent, its token, and the way back."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from latent_cli.connect import jsonc, toml_text
from latent_cli.connect.clients import FILES, Machine
from latent_core.domain.agent_clients import AGENT_CLIENTS, ClientName, ConfigFormat
from latent_core.domain.manifest.model import Manifest
from latent_core.domain.token import Scope, TokenState
from tests.support.fake_gateway.gateway import FakeGateway
from tests.support.fake_gateway.http import reply
from tests.support.harness.cli import CommandResult, Latent

COMMENTED = (
    '// mine\n{\n  "theme": "dark", // keep\n  "%s": {\n    "other": {"command": "x"},\n  },\n}\n'
)
PLAIN = (
    '{\n  "numStartups": 7,\n  "%s": {\n    "other": {"command": "x"}\n  },\n  "projects": {}\n}\n'
)
EXISTING = {
    ClientName.CLAUDE_CODE: PLAIN % "mcpServers",
    ClientName.CODEX: '# mine\nmodel = "o"\n\n[mcp_servers.other]\ncommand = "x" # keep\n',
    ClientName.CURSOR: PLAIN % "mcpServers",
    ClientName.VSCODE: COMMENTED % "servers",
    ClientName.GEMINI: PLAIN % "mcpServers",
    ClientName.OPENCODE: COMMENTED % "mcp",
    ClientName.ZED: COMMENTED % "context_servers",
}

LINUX_FILES = {
    ClientName.CLAUDE_CODE: ".claude.json",
    ClientName.CODEX: ".codex/config.toml",
    ClientName.CURSOR: ".cursor/mcp.json",
    ClientName.VSCODE: ".config/Code/User/mcp.json",
    ClientName.GEMINI: ".gemini/settings.json",
    ClientName.OPENCODE: ".config/opencode/opencode.json",
    ClientName.ZED: ".config/zed/settings.json",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "user"
    home.mkdir()
    for variable in ("XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(home))
    return home


def config_of(home: Path, name: ClientName) -> Path:
    return FILES[name](Machine(home, {}))


def entry_in(file: Path, name: ClientName) -> Any:
    value_at = (toml_text if file.suffix == ".toml" else jsonc).value_at
    return value_at(file.read_text("utf-8"), AGENT_CLIENTS[name].path)


def written(file: Path, content: str, mode: int = 0o644) -> bytes:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content, "utf-8")
    file.chmod(mode)
    return file.read_bytes()


def mode_of(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def all_files(home: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ClientName)
def test_an_agent_is_connected_once_and_disconnected_without_a_trace(
    latent: Latent, gateway: FakeGateway, home: Path, name: ClientName
) -> None:
    file = config_of(home, name)
    before = written(file, EXISTING[name])
    assert latent("connect", name).code == 0
    (token,) = gateway.tokens.values()
    assert (token.principal, token.containers) == (f"agent:{name}", ["notes"])
    assert set(token.scopes) == {Scope.READ, Scope.WRITE}
    entry = entry_in(file, name)
    headers = entry.get("headers") or entry["http_headers"]
    assert headers["Authorization"].startswith("Bearer lct_")
    assert f"{gateway.url}/mcp" in entry.values()
    for line in before.decode().splitlines():
        assert line in file.read_text("utf-8")
    assert mode_of(file) == 0o600
    after = file.read_bytes()
    again = latent("connect", name)
    assert "already" in again.out
    assert (file.read_bytes(), len(gateway.tokens)) == (after, 1)
    assert latent("disconnect", name).code == 0
    assert (file.read_bytes(), mode_of(file)) == (before, 0o644)
    assert gateway.tokens[token.id].state is TokenState.REVOKED
    assert "is not connected" in latent("disconnect", name).out


@pytest.mark.parametrize("name", ClientName)
def test_the_snippet_that_people_copy_is_what_connect_writes(
    latent: Latent, gateway: FakeGateway, home: Path, name: ClientName
) -> None:
    client = AGENT_CLIENTS[name]
    assert client.file == f"~/{LINUX_FILES[name]}"
    assert latent("connect", name).code == 0
    file = config_of(home, name)
    token = re.findall("lct_[0-9A-Za-z]+", file.read_text("utf-8"))[0]
    copied = client.snippet(f"{gateway.url}/mcp", token)
    is_toml = client.format is ConfigFormat.TOML
    value_at = (toml_text if is_toml else jsonc).value_at
    assert value_at(copied, client.path) == entry_in(file, name)
    assert is_toml == (file.suffix == ".toml")


@pytest.mark.parametrize("name", ClientName)
def test_files_and_folders_that_did_not_exist_are_gone_again(
    latent: Latent, home: Path, name: ClientName
) -> None:
    if sys.platform != "darwin":
        assert config_of(home, name) == home / LINUX_FILES[name]
    assert latent("connect", name).code == 0
    assert mode_of(config_of(home, name)) == 0o600
    assert latent("disconnect", name).code == 0
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("is_reversed", [False, True])
def test_folders_that_several_clients_use_go_with_the_last_of_them(
    latent: Latent, home: Path, is_reversed: bool
) -> None:
    names = [ClientName.ZED, ClientName.OPENCODE, ClientName.VSCODE, ClientName.CURSOR]
    for name in names:
        assert latent("connect", name).code == 0
    for name in reversed(names) if is_reversed else names:
        assert list(home.iterdir())
        assert latent("disconnect", name).code == 0
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("name", ClientName)
def test_an_edit_made_since_then_stays_and_only_our_entry_goes(
    latent: Latent, home: Path, name: ClientName
) -> None:
    file = config_of(home, name)
    before = written(file, EXISTING[name]).decode()
    latent("connect", name)
    edited = file.read_text("utf-8").replace("other", "renamed").replace("lct_", "lct_edited_")
    file.write_text(edited, "utf-8")
    assert latent("disconnect", name).code == 0
    assert file.read_text("utf-8") == before.replace("other", "renamed")


def test_a_dry_run_prints_a_diff_without_a_token_and_changes_nothing(
    latent: Latent, gateway: FakeGateway, home: Path, tmp_path: Path
) -> None:
    written(home / ".claude.json", EXISTING[ClientName.CLAUDE_CODE])
    before = all_files(tmp_path)
    shown = latent("connect", "claude-code", "--recall", "--dry-run")
    assert shown.code == 0
    assert '+    "latent": {' in shown.out
    assert "SessionStart" in shown.out
    assert "Bearer lct_********" in shown.out
    assert (all_files(tmp_path), gateway.tokens) == (before, {})
    latent("connect", "claude-code")
    secret = entry_in(home / ".claude.json", ClientName.CLAUDE_CODE)["headers"]["Authorization"]
    again = latent("connect", "claude-code", "--dry-run", "--json")
    assert secret.removeprefix("Bearer ") not in again.out


SECRETS = {
    ClientName.CLAUDE_CODE: '{"mcpServers":{"other":{"args":["--key","KEPT"],"env":{"A":"KEPT"}}},"b":"KEPT"}',
    ClientName.CURSOR: '{\n  "mcpServers": {\n    "other": "KEPT", // "KEPT\n    /* KEPT */ "last": "KEPT"\n  }\n}\n',
    ClientName.ZED: '{"a": "x\\"KEPT", "context_servers": {"other": {"headers": {"Authorization": "Bearer KEPT"}}}}',
    ClientName.CODEX: '[mcp_servers.other]\nenv = { A = \'KEPT\' }\nargs = ["--key", "KEPT"] # KEPT',
}


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_dry_run_shows_no_value_of_the_entries_of_others(
    latent: Latent, gateway: FakeGateway, home: Path, name: ClientName, options: tuple[str, ...]
) -> None:
    """Also where the whole file is one line, and where our entry is replaced."""
    written(config_of(home, name), SECRETS[name])
    shown = latent("connect", name, "--dry-run", *options)
    assert shown.code == 0
    assert "KEPT" not in shown.out + shown.err
    assert f"{gateway.url}/mcp" in shown.out
    assert "Bearer lct_********" in shown.out
    latent("connect", name)
    again = latent("connect", name, "--dry-run", *options)
    (secret,) = re.findall(r"lct_[\w-]+", config_of(home, name).read_text("utf-8"))
    assert "KEPT" not in again.out
    assert secret not in again.out


def test_another_container_takes_a_new_token_and_revokes_the_old_one(
    latent: Latent, gateway: FakeGateway, home: Path
) -> None:
    gateway.create(Manifest(id="code", name="Code"))
    file = config_of(home, ClientName.CURSOR)
    before = written(file, EXISTING[ClientName.CURSOR])
    several = latent("connect", "cursor")
    assert (several.code, "--container: notes, code" in several.err) == (2, True)
    wrong = latent("connect", "cursor", "-c", "note")
    assert (wrong.code, "did you mean 'notes'?" in wrong.err) == (1, True)
    assert gateway.tokens == {}
    latent("connect", "cursor", "-c", "notes")
    first = file.read_bytes()
    latent("connect", "cursor", "-c", "code")
    assert file.read_bytes() != first
    assert [(t.containers, t.state.value) for t in gateway.tokens.values()] == [
        (["notes"], "revoked"),
        (["code"], "live"),
    ]
    latent("disconnect", "cursor")
    assert file.read_bytes() == before


def test_a_revoked_token_and_a_lost_entry_are_replaced(
    latent: Latent, gateway: FakeGateway, home: Path
) -> None:
    file = config_of(home, ClientName.ZED)
    before = written(file, EXISTING[ClientName.ZED])
    latent("connect", "zed")
    latent("token", "revoke", "1")
    latent("connect", "zed")
    assert [t.state.value for t in gateway.tokens.values()] == ["revoked", "live"]
    file.write_bytes(before)
    latent("connect", "zed")
    assert entry_in(file, ClientName.ZED)
    assert [t.state.value for t in gateway.tokens.values()] == ["revoked", "revoked", "live"]
    latent("disconnect", "zed")
    assert file.read_bytes() == before


def test_a_new_connection_keeps_an_edit_that_was_made_since_the_first(
    latent: Latent, gateway: FakeGateway, home: Path
) -> None:
    gateway.create(Manifest(id="code", name="Code"))
    file = config_of(home, ClientName.VSCODE)
    before = written(file, EXISTING[ClientName.VSCODE]).decode()
    latent("connect", "vscode", "-c", "notes")
    file.write_text(file.read_text("utf-8").replace("other", "renamed"), "utf-8")
    latent("connect", "vscode", "-c", "code")
    latent("disconnect", "vscode")
    assert file.read_text("utf-8") == before.replace("other", "renamed")


@pytest.mark.parametrize(
    ("name", "content", "cause"),
    [
        ("vscode", '{\n  "servers": {\n', "line 3 is not valid JSON"),
        ("codex", "a = \n", "it is not valid TOML"),
        ("codex", "mcp_servers = { other = { url = 'x' } }\n", "cannot be edited safely"),
        ("cursor", '{"mcpServers": []}', "'mcpServers' is not an object"),
        ("zed", '{"context_servers": {"latent": {"url": "mine"}}}', "did not write"),
    ],
)
def test_a_file_that_cannot_be_edited_is_refused_before_a_token_exists(
    latent: Latent, gateway: FakeGateway, home: Path, name: str, content: str, cause: str
) -> None:
    file = config_of(home, ClientName(name))
    before = written(file, content)
    refused = latent("connect", name)
    assert refused.code in (1, 2)
    assert cause in refused.err
    assert str(file) in refused.err
    assert "then try again" in refused.err
    assert (file.read_bytes(), gateway.tokens) == (before, {})


def test_a_file_that_was_broken_since_then_is_left_alone_and_can_be_disconnected_later(
    latent: Latent, gateway: FakeGateway, home: Path
) -> None:
    file = config_of(home, ClientName.GEMINI)
    latent("connect", "gemini")
    sound = file.read_text("utf-8")
    file.write_text(sound + "}", "utf-8")
    refused = latent("disconnect", "gemini")
    assert (refused.code, "is not valid JSON" in refused.err) == (2, True)
    assert file.read_text("utf-8") == sound + "}"
    file.write_text(sound + " ", "utf-8")
    assert latent("disconnect", "gemini").code == 0
    assert file.read_text("utf-8") == "{}\n "
    assert gateway.tokens[1].state is TokenState.REVOKED


def test_a_symbolic_link_stays_and_its_target_is_restored(
    latent: Latent, home: Path, tmp_path: Path
) -> None:
    dotfiles = tmp_path / "dotfiles"
    (dotfiles / ".git").mkdir(parents=True)
    before = written(dotfiles / "zed.json", EXISTING[ClientName.ZED])
    link = config_of(home, ClientName.ZED)
    link.parent.mkdir(parents=True)
    link.symlink_to(dotfiles / "zed.json")
    connected = latent("connect", "zed")
    assert "do not commit it" in " ".join(connected.err.split())
    assert link.is_symlink()
    assert entry_in(dotfiles / "zed.json", ClientName.ZED)
    latent("disconnect", "zed")
    assert link.is_symlink()
    assert (dotfiles / "zed.json").read_bytes() == before


def test_a_file_that_cannot_be_written_leaves_nothing_changed_and_no_token(
    latent: Latent, gateway: FakeGateway, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = os.replace

    def refuse_settings(source: Any, target: Any) -> None:
        if str(target).endswith("settings.json"):
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse_settings)
    before = written(home / ".claude.json", EXISTING[ClientName.CLAUDE_CODE])
    (home / ".claude.json").chmod(0o640)
    refused = latent("connect", "claude-code", "--recall")
    assert refused.code == 1
    assert "No space left on device" in refused.err
    assert (home / ".claude.json").read_bytes() == before
    assert (home / ".claude.json").stat().st_mode & 0o777 == 0o640
    assert not (home / ".claude").exists()
    assert [t.state for t in gateway.tokens.values()] == [TokenState.REVOKED]
    assert "is not connected" in latent("disconnect", "claude-code").out


def test_without_a_gateway_the_files_are_restored_and_the_token_is_revoked_later(
    latent: Latent, gateway: FakeGateway, home: Path
) -> None:
    file = config_of(home, ClientName.CURSOR)
    before = written(file, EXISTING[ClientName.CURSOR])
    latent("connect", "cursor")
    issue = {"code": "UNAVAILABLE", "message": "no"}
    gateway.failures += [("GET /v1/tokens", reply(403, issues=[issue]))]
    failed = latent("disconnect", "cursor")
    assert failed.code == 1
    assert "run `latent disconnect cursor` again" in failed.err
    assert file.read_bytes() == before
    file.write_text("{}", "utf-8")
    assert latent("disconnect", "cursor").code == 0
    assert gateway.tokens[1].state is TokenState.REVOKED
    assert file.read_text("utf-8") == "{}"


def test_recall_adds_a_start_hook_after_others_and_takes_it_out(latent: Latent, home: Path) -> None:
    settings = home / ".claude" / "settings.json"
    hooks = '{\n  "hooks": {\n    "SessionStart": [\n      {"hooks": [{"type": "command", "command": "date"}]}\n    ]\n  }\n}\n'
    before = written(settings, hooks)
    assert latent("connect", "claude-code", "--recall").code == 0
    items = json.loads(settings.read_text("utf-8"))["hooks"]["SessionStart"]
    assert items[0] == {"hooks": [{"type": "command", "command": "date"}]}
    command = items[1]["hooks"][0]["command"]
    shown = subprocess.run(shlex.split(command), capture_output=True, text=True, check=False)
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, "", "")  # no notes to show
    assert command.endswith("/connections/claude-code.json")
    assert "already" in latent("connect", "claude-code").out
    settings.write_text(settings.read_text("utf-8").replace("date", "uptime"), "utf-8")
    latent("connect", "claude-code", "--no-recall")
    assert settings.read_text("utf-8") == before.decode().replace("date", "uptime")
    latent("disconnect", "claude-code")
    assert list(home.iterdir()) == [home / ".claude"]
    refused = latent("connect", "zed", "--recall")
    assert (refused.code, "claude-code only" in refused.err) == (2, True)


def test_places_of_the_files_follow_the_variables_of_the_clients_and_the_system(
    tmp_path: Path,
) -> None:
    moved = {"XDG_CONFIG_HOME": "/x", "CODEX_HOME": "/c", "CLAUDE_CONFIG_DIR": "/a"}
    linux, mac = Machine(tmp_path, moved, is_macos=False), Machine(tmp_path, {}, is_macos=True)
    assert FILES[ClientName.VSCODE](linux) == Path("/x/Code/User/mcp.json")
    assert FILES[ClientName.CODEX](linux) == Path("/c/config.toml")
    assert FILES[ClientName.CLAUDE_CODE](linux) == Path("/a/.claude.json")
    support = tmp_path / "Library" / "Application Support"
    assert FILES[ClientName.VSCODE](mac) == support / "Code" / "User" / "mcp.json"
    assert FILES[ClientName.ZED](mac) == tmp_path / ".config" / "zed" / "settings.json"
    written(tmp_path / ".config" / "opencode" / "opencode.jsonc", "{}")
    assert FILES[ClientName.OPENCODE](mac).name == "opencode.jsonc"


def test_a_connection_from_uvx_needs_no_command_and_a_start_hook_from_it_is_refused(
    latent: Latent, gateway: FakeGateway, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents speak HTTP: their entry stays valid when uv's cache is cleaned. A hook would not."""
    python = home / ".cache" / "uv" / "archive-v0" / "x1" / "bin" / "python"
    monkeypatch.setattr(sys, "executable", str(python))
    refused = latent("connect", "claude-code", "--recall")
    assert refused.code == 2
    assert "the start hook of --recall would end with it: install it with `uv tool" in refused.err
    assert gateway.requests_to("POST .*") == []
    assert not (home / ".claude.json").exists()
    for client in ClientName:
        assert latent("connect", client).code == 0
        written = (home / LINUX_FILES[client]).read_text()
        assert ("archive-v0" in written, "command" in written) == (False, False), client


def test_recall_is_silent_without_a_connection_or_a_gateway(
    latent: Latent,
    gateway: FakeGateway,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    assert latent("recall", "claude-code") == CommandResult(0, "", "")
    latent("connect", "claude-code", "--recall")
    record = tmp_path / "data" / "connections" / "claude-code.json"
    assert mode_of(record) == 0o600
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        stored = json.loads(record.read_text("utf-8"))
        closed = f"http://127.0.0.1:{deaf.getsockname()[1]}"
    record.write_text(json.dumps({**stored, "url": closed}), "utf-8")
    assert latent("recall", "claude-code") == CommandResult(0, "", "")
    record.write_text("[]", "utf-8")
    assert latent("recall", "claude-code") == CommandResult(0, "", "")
