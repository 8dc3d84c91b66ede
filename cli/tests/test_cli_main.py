"""The command line as a whole: help, errors, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer

from latent_cli.main import COMMANDS, module_of
from latent_client import retry
from latent_core.domain.errors import LatentError, NotFound, OutOfSpace, TimedOut, Unavailable
from tests.support.fake_gateway.gateway import TOKEN, FakeGateway
from tests.support.fake_gateway.http import FakeResponse, failure
from tests.support.harness.cli import Latent

HEAVY = ("httpx", "rich", "pydantic", "latent_client", "psycopg", "fastapi", "numpy", "asyncio")


def test_help_imports_nothing_that_a_command_needs() -> None:
    code = (
        "import sys\nfrom latent_cli.main import run\n"
        "assert run(['--help']) == 0\n"
        f"print([m for m in {HEAVY} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert all(f"  {name} " in done.stdout for name in COMMANDS)


UNUSED_BY_SEARCH = (
    *("numpy", "pandas", "yaml", "pathspec", "click", "pygments", "rich", "cronsim", "h2"),
    *("fastapi", "psycopg", "onnxruntime", "latent_gateway", "latent_workers"),
    *("latent_client.client", "latent_client.folder", "latent_core.wire.documents"),
    *("latent_core.domain.manifest", "latent_core.domain.document", "latent_core.domain.job"),
)


def test_a_search_imports_nothing_that_it_does_not_use(
    gateway: FakeGateway, tmp_path: Path
) -> None:
    """Its time is the time of its imports: each of these costs 10 to 200 ms."""
    gateway.put("notes", "file:///a.md", b"The lamp and oil.")
    code = (
        "import sys\nfrom latent_cli.main import run\n"
        "assert run(['search', 'lamp', '-c', 'notes']) == 0\n"
        f"print([m for m in {UNUSED_BY_SEARCH} if sys.modules.get(m)], file=sys.stderr)"
    )
    given = {"LLC_URL": gateway.url, "LLC_MCP_TOKEN": TOKEN, "LLC_DATA_DIR": str(tmp_path)}
    environment = {**os.environ, **given}  # noqa: TID251 - handed on to a process, not read
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
        cwd=tmp_path,
    )
    assert "1. a.md" in done.stdout
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("module", ["container", "ingest", "search", "jobs", "documents", "doctor"])
def test_client_commands_do_not_import_the_services(module: str) -> None:
    code = (
        f"import sys, latent_cli.commands.{module}\n"
        "print([m for m in ('latent_gateway', 'latent_workers', 'psycopg', 'onnxruntime', 'fastapi')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_says_what_the_commands_own_help_says(name: str) -> None:
    command = typer.main.get_command(import_module(module_of(name)).app)
    assert command.help is not None
    assert command.help.splitlines()[0] == COMMANDS[name]


def _leaves() -> list[list[str]]:
    leaves: list[list[str]] = []
    for name in COMMANDS:
        command = typer.main.get_command(import_module(module_of(name)).app)
        inner = getattr(command, "commands", None)
        leaves += [[name, sub] for sub in inner] if inner else [[name]]
    return leaves


@pytest.mark.parametrize("leaf", _leaves(), ids=" ".join)
def test_every_command_has_json_and_help(leaf: list[str], latent: Latent) -> None:
    result = latent(*leaf, "--help")
    assert result.code == 0
    # What `latent mcp` writes is the protocol's own JSON; what `latent recall` writes is for a model.
    assert "--json" in result.out or leaf in (["mcp"], ["recall"])


def test_no_argument_at_all_shows_the_help(latent: Latent) -> None:
    assert "Usage: latent" in latent().out


def test_the_release_is_printed(latent: Latent) -> None:
    assert latent("--version").out.startswith("latent ")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["serach"], "no command 'serach'; did you mean 'search'?"),
        (["ingest", "x"], "Missing option '--container'"),
        (["search", "x", "-c", "notes", "--top-k", "many"], "'--top-k'"),
        (
            ["search", "x", "-c", "notes", "--mode", "magic"],
            "unknown mode 'magic'; choose from hybrid",
        ),
        (["jobs"], "Missing command"),
        (["search", "x", "-c", "notes", "--top-k", "0"], "top_k"),
        (["search", "x" * 9000, "-c", "notes"], "query"),
    ],
)
def test_what_cannot_be_understood_is_one_line_and_exit_code_2(
    arguments: list[str], expected: str, latent: Latent, gateway: FakeGateway
) -> None:
    result = latent(*arguments)
    assert result.code == 2
    assert expected in result.err
    assert result.err.startswith("latent: ")
    assert result.err.count("\n") == 1
    assert not result.out
    assert not gateway.requests


@pytest.mark.parametrize("error", [NotFound("a"), OutOfSpace("b"), TimedOut("c")])
def test_an_error_of_the_gateway_is_exit_code_1(
    error: LatentError, latent: Latent, gateway: FakeGateway
) -> None:
    gateway.failures = [("GET .*", failure(error))]
    result = latent("container", "list")
    assert (result.code, result.out, result.err) == (1, "", f"latent: {error.message}\n")


def test_a_gateway_that_is_not_available_is_tried_again_with_one_line_on_stderr(
    latent: Latent, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.001)
    gateway.failures = [("GET .*", failure(Unavailable("Postgres is not available")))] * 2
    result = latent("container", "list", "--json")
    assert result.code == 0
    assert [one["id"] for one in result.json["containers"]] == ["notes"]
    assert result.err == (
        "latent: Postgres is not available; trying again in 0 s (attempt 2 of 8)\n"
    )


def test_a_gateway_that_stays_unavailable_is_exit_code_1(
    latent: Latent, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.001)
    gateway.failures = [("GET .*", failure(Unavailable("away")))] * retry.MAX_ATTEMPTS
    result = latent("container", "list")
    assert (result.code, result.out) == (1, "")
    assert result.err.splitlines()[-1] == "latent: away"
    assert not gateway.failures


def test_with_json_an_error_is_an_issue_on_stdout_too(latent: Latent) -> None:
    result = latent("container", "describe", "nothing", "--json")
    assert result.code == 1
    assert result.json["issues"][0]["code"] == "NOT_FOUND"
    assert result.err.count("\n") == 1


def test_a_gateway_that_is_not_there_is_exit_code_3(
    latent: Latent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLC_URL", "http://127.0.0.1:9")
    result = latent("container", "list")
    assert result.code == 3
    assert "start it with `latent up`" in result.err


def test_a_message_cannot_steer_the_terminal(latent: Latent, gateway: FakeGateway) -> None:
    gateway.failures = [("GET .*", failure(NotFound("a\x1b[2Jb\r\nc\x9bd")))]
    assert latent("container", "list").err == "latent: a\ufffd[2Jb c\ufffdd\n"


def test_an_unexpected_error_is_one_line_and_a_traceback_only_with_debug(
    latent: Latent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError("nothing to divide")

    monkeypatch.setattr("latent_cli.commands.config.shown_value", broken)
    result = latent("config")
    assert result.code == 1
    assert result.err.count("\n") == 1
    assert "ZeroDivisionError: nothing to divide" in result.err
    assert "Traceback" in latent("--debug", "config").err


def test_the_token_of_the_data_directory_is_used(
    latent: Latent, gateway: FakeGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LLC_MCP_TOKEN")
    result = latent("container", "list")
    assert result.code == 1
    assert f"LLC_MCP_TOKEN is not set and {tmp_path}/data/token cannot be read" in result.err

    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "token").write_text(gateway.token + "\n", encoding="utf-8")
    assert latent("container", "list").code == 0


def test_a_setting_that_cannot_be_read_is_named(
    latent: Latent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLC_PORT", "many")
    result = latent("container", "list")
    assert result.code == 2
    assert "LLC_PORT" in result.err


def test_an_answer_of_another_kind_is_not_a_traceback(latent: Latent, gateway: FakeGateway) -> None:
    gateway.failures = [("GET .*", FakeResponse(200, b"<html>", "text/html"))]
    result = latent("container", "list", "--json")
    assert result.code == 1
    assert json.loads(result.out)["issues"][0]["code"] == "UNAVAILABLE"
