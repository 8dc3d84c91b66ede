"""Commands that start processes, on real ones."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import pytest

from latent_cli.banner import announcing, screen, screen_lines
from latent_cli.main import COMMANDS
from latent_core.db import start
from latent_core.runtime.data_directory import DataDirectory
from latent_core.settings import Settings
from latent_gateway.app import StartedGateway
from tests.support import REPOSITORY
from tests.support.fake_gateway.gateway import FakeGateway
from tests.support.harness.cli import Latent


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """Not below pytest's own folder, which the user of Postgres may not enter."""
    folder = Path(tempfile.mkdtemp(prefix="latent-migrate-"))
    folder.chmod(0o755)
    yield folder / "data"
    shutil.rmtree(folder, ignore_errors=True)


def test_migrate_brings_a_server_to_the_current_schema(
    latent: Latent, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLC_POSTGRES_DSN", dsn)
    result = latent("migrate")
    assert (result.code, result.out) == (0, "LLC_POSTGRES_DSN: nothing to do\n")


def test_migrate_names_a_server_that_is_not_there(
    latent: Latent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "WAIT_SECONDS", 0.0)
    monkeypatch.setenv("LLC_POSTGRES_DSN", "host=127.0.0.1 port=9 user=nobody password=hunter2")
    result = latent("migrate")
    assert result.code == 1
    assert "Connection refused" in result.err
    assert "check LLC_POSTGRES_DSN" in result.err
    assert result.err.count("\n") == 1
    assert "hunter2" not in result.err


def test_migrate_starts_the_embedded_server_and_stops_it(latent: Latent, data_dir: Path) -> None:
    first = latent("migrate", "--data-dir", data_dir, "--json").json
    assert first["applied"][0] == "0001_initial"
    assert first["database"] == str(data_dir / "postgres")
    assert latent("migrate", "--data-dir", data_dir).out.endswith("nothing to do\n")
    assert not (data_dir / "postgres" / "postmaster.pid").exists()


def test_adopt_says_that_embedded_stores_need_no_adoption(latent: Latent, data_dir: Path) -> None:
    result = latent("adopt", "--data-dir", data_dir)
    assert result.code == 2
    assert "nothing to adopt" in result.err
    assert result.err.count("\n") == 1
    assert not (data_dir / "postgres").exists()


def test_migrate_is_refused_while_another_process_holds_the_data_directory(
    latent: Latent, data_dir: Path
) -> None:
    with DataDirectory(data_dir):
        result = latent("migrate", "--data-dir", data_dir)
    assert result.code == 1
    assert "is held by process" in result.err


def test_a_port_in_use_is_named_before_anything_is_started(
    latent: Latent, data_dir: Path, gateway: FakeGateway
) -> None:
    taken = urlsplit(gateway.url).port
    result = latent("up", "--data-dir", data_dir, "--port", str(taken))
    assert result.code == 1
    assert f"port {taken} on 127.0.0.1 cannot be used" in result.err
    assert not data_dir.exists()


START_SECONDS: Final = 180.0
STOP_SECONDS: Final = 40.0
LINK: Final = re.compile(r"(http://127\.0\.0\.1:\d+)/login/link\?code=([\w-]{43})")


@dataclass
class Terminal:
    """A process on a terminal of its own."""

    process: subprocess.Popen[bytes]
    descriptor: int
    text: str = ""

    def read_until(self, words: str) -> None:
        """Read what the process prints, until it has printed ``words`` or has ended."""
        while words not in self.text:
            try:
                self.text += os.read(self.descriptor, 65536).decode()
            except OSError:  # the process has closed its side
                return


@contextmanager
def on_a_terminal(*arguments: str | Path) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LLC_", "MCP_"))}  # noqa: TID251
    process = subprocess.Popen(
        [sys.executable, "-m", "latent_cli", *map(str, arguments)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=kept,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(STOP_SECONDS)
        os.close(ours)


@pytest.mark.timeout(START_SECONDS + STOP_SECONDS)
def test_up_starts_empty_with_one_screen_and_a_link_that_is_in_no_log(data_dir: Path) -> None:
    with on_a_terminal("up", "--data-dir", data_dir, "--port", "0") as terminal:
        terminal.read_until("Press Ctrl-C")
        (url, code), *others = LINK.findall(terminal.text)
        assert others == []
        for words in (url, "latent connect claude-code", str(data_dir), "log/latent.log"):
            assert words in terminal.text
        assert len(terminal.text.splitlines()) <= 12
        with httpx.Client(base_url=url, headers={"Origin": url}, trust_env=False) as browser:
            assert code in browser.get("/login/link", params={"code": code}).text
            signed_in = browser.post("/login/link", data={"code": code}, follow_redirects=True)
            assert (signed_in.status_code, ">local:you<" in signed_in.text) == (200, True)
            token = (data_dir / "token").read_text().strip()
            owned = browser.get("/v1/containers/list", headers={"Authorization": f"Bearer {token}"})
            assert owned.json()["containers"] == []
        terminal.process.send_signal(signal.SIGINT)
        terminal.read_until("nothing else")
        assert terminal.process.wait(STOP_SECONDS) == 0
    assert '"request"' not in terminal.text
    assert terminal.text.count(code) == 1
    log = (data_dir / "log" / "latent.log").read_text("utf-8")
    lines = [json.loads(line) for line in log.splitlines()]
    assert [line["path"] for line in lines if line["msg"] == "request"].count("/login/link") == 2
    assert list((data_dir / "manifests").iterdir()) == []
    written = [file for file in data_dir.rglob("*") if file.is_file()]
    assert len(written) > 3
    assert not [file for file in written if code.encode() in file.read_bytes()]


def test_make_names_no_folder_of_manifests_so_that_a_checkout_starts_empty_too() -> None:
    assert "LLC_MANIFEST_DIR" not in (REPOSITORY / "Makefile").read_text("utf-8")


def test_the_screen_names_only_commands_that_exist() -> None:
    started = StartedGateway("http://127.0.0.1:7801", "a file", lambda: "http://127.0.0.1:7801/x")
    text = " ".join(value for _, value in screen_lines(Settings(_env_file=None), started))
    named = re.findall(r"latent ([a-z]+)", text)
    assert {"connect", "container", "ingest"} <= set(named) <= set(COMMANDS)


def test_the_screen_says_what_other_shells_need_for_another_port_or_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # no .env of the checkout
    for name in ("LLC_URL", "LLC_PORT", "LLC_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)

    def shells(url: str, **options: Any) -> list[str]:
        started = StartedGateway(url, "a file", None)
        lines = screen_lines(Settings(**options), started)
        return [value.partition("   ")[0] for name, value in lines if name == "shells"]

    folder = tmp_path / "my data"
    assert shells("http://127.0.0.1:7801") == []
    assert shells("http://127.0.0.1:7802", port=7802) == ["export LLC_URL=http://127.0.0.1:7802"]
    assert shells("http://127.0.0.1:7801", data_dir=folder) == [f"export LLC_DATA_DIR='{folder}'"]
    monkeypatch.setenv("LLC_PORT", "7802")
    assert shells("http://127.0.0.1:7802") == []


def test_the_link_is_for_terminals_only(capsys: pytest.CaptureFixture[str]) -> None:
    def link() -> str:
        raise AssertionError("no link is made where stdout may be kept")

    started = StartedGateway("http://127.0.0.1:7801", "a file", link)
    for announce in (screen(Settings(_env_file=None)), announcing(as_json=True)):
        announce(started)
        printed = capsys.readouterr().out
        assert "http://127.0.0.1:7801" in printed
        assert "/login/link" not in printed
