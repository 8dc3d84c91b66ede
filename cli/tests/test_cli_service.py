"""`latent service`: the files it writes, and what it asks of systemd and launchd."""

from __future__ import annotations

import os
import plistlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from latent_cli.service import Launchd, ServiceSpec, Systemd, service_command
from latent_core.domain.errors import Invalid
from tests.support.harness.cli import Latent

ODD = Path('/srv/a b/50%/$HOME/"q"')
SPEC = ServiceSpec(
    ("/opt/a b/bin/python", "-m", "latent_cli", "up", "--data-dir", str(ODD)), ODD, ODD / "log"
)
MANAGER = """#!/bin/sh
echo "$(basename "$0") $*" >> "{log}"
case "$*" in
    *is-active*) test -e "{running}" ;;
    print*) test -e "{running}" && echo "    state = running" ;;
    *start*|bootstrap*) touch "{running}" ;;
    *disable*|bootout*) rm -f "{running}" ;;
esac
"""


class FakeManager:
    """`systemctl` and `launchctl` that note how they are called."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "calls"
        programs = folder / "bin"
        programs.mkdir()
        text = MANAGER.format(log=self._log, running=folder / "running")
        for name in ("systemctl", "launchctl"):
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        self.path = f"{programs}:{os.defpath}"

    def calls(self) -> list[str]:
        """Since the last time."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        self._log.unlink(missing_ok=True)
        return lines


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeManager:
    home = tmp_path / "user"
    home.mkdir()
    manager = FakeManager(tmp_path)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("PATH", manager.path)
    monkeypatch.setattr(sys, "platform", "linux")
    return manager


def unit(tmp_path: Path) -> Path:
    return tmp_path / "user" / ".config" / "systemd" / "user" / "latent.service"


def agent(tmp_path: Path) -> Path:
    return tmp_path / "user" / "Library" / "LaunchAgents" / "latent-containers.plist"


def test_a_unit_quotes_paths_and_leaves_stopping_postgres_to_the_process() -> None:
    text = Systemd(Path("/c")).content(SPEC).decode()
    assert (
        'ExecStart="/opt/a b/bin/python" "-m" "latent_cli" "up" "--data-dir" "/srv/a b/50%%/$$HOME/\\"q\\""\n'
        in text
    )
    assert 'WorkingDirectory=/srv/a b/50%%/$HOME/"q"\n' in text
    assert "KillMode=mixed\n" in text
    assert "Restart=on-failure\n" in text
    assert "RestartPreventExitStatus=2\n" in text
    assert "WantedBy=default.target\n" in text


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_finds_no_fault_in_the_unit(tmp_path: Path) -> None:
    folder = tmp_path / "a b%"
    folder.mkdir()
    spec = ServiceSpec(
        (sys.executable, "-m", "latent_cli", "up", "--data-dir", str(folder)), folder, folder
    )
    file = tmp_path / "latent.service"
    file.write_bytes(Systemd(tmp_path).content(spec))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", "--man=no", str(file)],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},  # noqa: TID251 - handed on to a process
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert "latent.service" not in done.stderr
    assert done.returncode == 0, done.stderr


def test_an_agent_of_launchd_starts_at_login_and_after_a_failure() -> None:
    read = plistlib.loads(Launchd(Path("/h"), 501).content(SPEC))
    assert read["ProgramArguments"] == list(SPEC.command)
    assert (read["RunAtLoad"], read["KeepAlive"]) == (True, {"SuccessfulExit": False})
    assert read["WorkingDirectory"] == str(ODD)
    assert read["StandardErrorPath"] == str(ODD / "log")


def test_a_dry_run_prints_the_file_and_writes_nothing(
    latent: Latent, manager: FakeManager, tmp_path: Path
) -> None:
    shown = latent("service", "install", "--dry-run", "--data-dir", "/srv/latent", "--port", "7900")
    assert shown.code == 0
    assert f'ExecStart="{sys.executable}" "-m" "latent_cli" "up"' in shown.out
    assert '"--data-dir" "/srv/latent" "--port" "7900"' in shown.out
    assert not unit(tmp_path).exists()
    assert not manager.calls()


def test_the_service_is_installed_once_and_starts_again_only_if_it_changes(
    latent: Latent, manager: FakeManager, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    assert latent("service", "install", "--json").json == {
        "file": str(unit(tmp_path)),
        "changed": True,
    }
    assert manager.calls() == [
        "systemctl --user daemon-reload",
        "systemctl --user enable latent.service",
        "systemctl --user restart latent.service",
    ]
    written = unit(tmp_path).read_text()
    assert f"WorkingDirectory={data}\n" in written
    assert (data / "log").stat().st_mode & 0o777 == 0o700, "only its owner may read the log"

    again = latent("service", "install")
    assert again.out == f"unchanged: {unit(tmp_path)}; the service is started\n"
    assert f"not used by the service: LLC_MCP_TOKEN; write them to {data / '.env'}" in again.err
    assert manager.calls()[-1] == "systemctl --user start latent.service"
    assert unit(tmp_path).read_text() == written

    assert latent("service", "install", "--port", "7900", "--json").json["changed"] is True
    assert manager.calls()[-1] == "systemctl --user restart latent.service"
    assert '"--port" "7900"' in unit(tmp_path).read_text()


def test_the_status_says_whether_the_service_is_installed_and_runs(
    latent: Latent, manager: FakeManager, tmp_path: Path
) -> None:
    before = latent("service", "status")
    assert (before.code, "is not installed" in before.out) == (1, True)
    assert not manager.calls()
    latent("service", "install")
    assert latent("service", "status", "--json").json == {
        "file": str(unit(tmp_path)),
        "installed": True,
        "running": True,
    }
    (tmp_path / "running").unlink()
    stopped = latent("service", "status")
    assert (stopped.code, "is stopped" in stopped.out) == (1, True)


def test_the_service_is_removed_once_and_its_data_stays(
    latent: Latent, manager: FakeManager, tmp_path: Path
) -> None:
    latent("service", "install")
    manager.calls()
    kept = tmp_path / "data" / "kept"
    kept.touch()
    assert latent("service", "uninstall").out == f"removed {unit(tmp_path)}\n"
    assert manager.calls() == [
        "systemctl --user disable --now latent.service",
        "systemctl --user daemon-reload",
    ]
    assert not unit(tmp_path).exists()
    assert kept.exists()
    assert latent("service", "uninstall").out == "the service is not installed\n"
    assert not manager.calls()


def test_on_macos_a_changed_agent_is_loaded_again_and_an_unchanged_one_is_left_alone(
    latent: Latent, manager: FakeManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    domain = f"gui/{os.getuid()}"
    loading = [f"launchctl bootstrap {domain} {agent(tmp_path)}"]

    def changes() -> list[str]:
        return [line for line in manager.calls() if "print" not in line]

    assert latent("service", "install").code == 0
    assert changes() == loading
    assert latent("service", "install").code == 0
    assert changes() == []
    assert latent("service", "install", "--port", "7900").code == 0
    assert changes() == [f"launchctl bootout {domain}/latent-containers", *loading]
    assert latent("service", "status").code == 0
    assert latent("service", "uninstall").code == 0
    assert changes() == [f"launchctl bootout {domain}/latent-containers"]
    assert not agent(tmp_path).exists()


def test_a_manager_that_refuses_or_is_absent_is_one_line_with_the_cause(
    latent: Latent, manager: FakeManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "systemctl"
    program.write_text("#!/bin/sh\necho 'Failed to connect to bus' >&2\nexit 1\n")
    refused = latent("service", "install")
    assert refused.code == 1
    assert (
        "`systemctl --user daemon-reload` failed: Failed to connect to bus; call it as the user"
        in refused.err
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    absent = latent("service", "install")
    assert (absent.code, "systemctl is not installed" in absent.err) == (1, True)
    monkeypatch.setattr(sys, "platform", "win32")
    assert "not on win32" in latent("service", "status").err


@pytest.mark.parametrize(
    "folder",
    [
        ".cache/uv/archive-v0/x1",
        "Library/Caches/uv/environments-v2/x1",
        ".cache/pipx/0a1b2c3d",
        "Library/Caches/pipx/0a1b2c3d",
        ".local/share/pipx/.cache/0a1b2c3d",
    ],
)
def test_a_service_from_a_temporary_environment_is_refused(folder: str) -> None:
    with pytest.raises(Invalid, match=r"the service would end with it: .*uv tool install latent-c"):
        service_command(Path("/h") / folder / "bin" / "python", [])


@pytest.mark.parametrize(
    "folder",
    [
        ".local/share/uv/tools/latent-containers",
        ".local/share/pipx/venvs/latent-containers",
        "checkout/.venv",
    ],
)
def test_a_service_from_an_installation_names_its_interpreter(folder: str) -> None:
    kept = Path("/h") / folder / "bin" / "python"
    assert service_command(kept, ["--port", "1"])[:2] == (str(kept), "-m")
