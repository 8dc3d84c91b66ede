"""`latent up` as a service of one user: a unit of systemd on Linux, an agent of launchd on macOS."""

from __future__ import annotations

import os
import plistlib
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from typing_extensions import override

from latent_cli.interpreter import lasting
from latent_core.domain.errors import Invalid, Unavailable

UNIT: Final = "latent.service"
LABEL: Final = "latent-containers"
COMMAND_SECONDS: Final = 90.0
PRIVATE: Final = 0o700
STOP_SECONDS: Final = 60
"""Longer than `latent up` needs to end its jobs and stop Postgres."""
SYSTEMD_ESCAPES: Final = str.maketrans(
    {"\\": "\\\\", '"': '\\"', "%": "%%", "$": "$$", "\n": "\\n", "\t": "\\t"}
)


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """What the service runs, and where."""

    command: tuple[str, ...]
    folder: Path
    """Its working directory: settings are read from `.env` in it."""
    log: Path
    """For launchd, which has no journal."""


def service_command(python: Path, arguments: Sequence[str]) -> tuple[str, ...]:
    """`latent up` by whole paths. ``Invalid`` if this installation is temporary."""
    return (str(lasting(python, "the service")), "-m", "latent_cli", "up", *arguments)


class Services(Protocol):
    """The system's manager of a user's services."""

    @property
    def file(self) -> Path:
        """The file that describes the service."""
        ...

    def content(self, spec: ServiceSpec) -> bytes: ...
    def start(self, *, changed: bool) -> None:
        """Start it now and at every login; with ``changed``, start it again if it runs."""
        ...

    def stop(self) -> None:
        """Stop it, and start it no more."""
        ...

    def forget(self) -> None:
        """Called after the file is deleted."""
        ...

    def is_running(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Systemd(Services):
    config: Path

    @property
    @override
    def file(self) -> Path:
        return self.config / "systemd" / "user" / UNIT

    @override
    def content(self, spec: ServiceSpec) -> bytes:
        command = " ".join(f'"{word.translate(SYSTEMD_ESCAPES)}"' for word in spec.command)
        folder = str(spec.folder).replace("%", "%%")
        return f"""\
# Written by `latent service install`, which writes it again.
[Unit]
Description=Latent Containers
StartLimitIntervalSec=120
StartLimitBurst=5

[Service]
Type=exec
ExecStart={command}
WorkingDirectory={folder}
Restart=on-failure
RestartSec=5
# Settings that are invalid do not become valid by another start.
RestartPreventExitStatus=2
# The process stops Postgres and the parsers itself.
KillMode=mixed
TimeoutStopSec={STOP_SECONDS}

[Install]
WantedBy=default.target
""".encode()

    @override
    def start(self, *, changed: bool) -> None:
        _done("systemctl", "--user", "daemon-reload")
        _done("systemctl", "--user", "enable", UNIT)
        _done("systemctl", "--user", "restart" if changed else "start", UNIT)

    @override
    def stop(self) -> None:
        _done("systemctl", "--user", "disable", "--now", UNIT)

    @override
    def forget(self) -> None:
        _done("systemctl", "--user", "daemon-reload")

    @override
    def is_running(self) -> bool:
        return _called("systemctl", "--user", "is-active", "--quiet", UNIT).returncode == 0


@dataclass(frozen=True, slots=True)
class Launchd(Services):
    home: Path
    uid: int

    @property
    @override
    def file(self) -> Path:
        return self.home / "Library" / "LaunchAgents" / f"{LABEL}.plist"

    @property
    def _domain(self) -> str:
        return f"gui/{self.uid}"

    @property
    def _target(self) -> str:
        return f"{self._domain}/{LABEL}"

    @override
    def content(self, spec: ServiceSpec) -> bytes:
        return plistlib.dumps(
            {
                "Label": LABEL,
                "ProgramArguments": list(spec.command),
                "WorkingDirectory": str(spec.folder),
                "RunAtLoad": True,
                "KeepAlive": {"SuccessfulExit": False},
                "ThrottleInterval": 30,
                "ExitTimeOut": STOP_SECONDS,
                "ProcessType": "Interactive",
                "StandardOutPath": str(spec.log),
                "StandardErrorPath": str(spec.log),
            }
        )

    @override
    def start(self, *, changed: bool) -> None:
        if changed and self._is_loaded():
            _done("launchctl", "bootout", self._target)
        if not self._is_loaded():
            _done("launchctl", "bootstrap", self._domain, str(self.file))
        elif not self.is_running():
            _done("launchctl", "kickstart", self._target)

    @override
    def stop(self) -> None:
        if self._is_loaded():
            _done("launchctl", "bootout", self._target)

    @override
    def forget(self) -> None:
        """Nothing: launchd reads the folder at login."""

    @override
    def is_running(self) -> bool:
        return "state = running" in _called("launchctl", "print", self._target).stdout

    def _is_loaded(self) -> bool:
        return _called("launchctl", "print", self._target).returncode == 0


def services_of(platform: str, home: Path, environ: Mapping[str, str], uid: int) -> Services:
    """The manager of this system. ``Invalid`` if it has neither."""
    if platform == "linux":
        return Systemd(Path(environ.get("XDG_CONFIG_HOME") or home / ".config"))
    if platform == "darwin":
        return Launchd(home, uid)
    raise Invalid(f"services are installed on Linux and macOS, not on {platform}")


def install(services: Services, spec: ServiceSpec) -> bool:
    """Write the file, and start the service. Returns whether the file is new or has changed."""
    content = services.content(spec)
    changed = not services.file.is_file() or services.file.read_bytes() != content
    for folder in (spec.folder, spec.log.parent):
        folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    if changed:
        _write(services.file, content)
    services.start(changed=changed)
    return changed


def uninstall(services: Services) -> bool:
    """Stop the service and delete its file. Returns whether it was installed."""
    if not services.file.is_file():
        return False
    services.stop()
    services.file.unlink()
    services.forget()
    return True


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)


def _done(*command: str) -> None:
    done = _called(*command)
    if done.returncode:
        cause = (done.stderr or done.stdout).strip() or f"exit code {done.returncode}"
        raise Unavailable(
            f"`{' '.join(command)}` failed: {cause}; call it as the user of the service, in a session of that user"
        )


def _called(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
        )
    except FileNotFoundError as exc:
        raise Unavailable(
            f"{command[0]} is not installed: start `latent up` by other means"
        ) from exc
    except subprocess.TimeoutExpired as exc:
        raise Unavailable(f"`{' '.join(command)}` did not end in {COMMAND_SECONDS:g} s") from exc
