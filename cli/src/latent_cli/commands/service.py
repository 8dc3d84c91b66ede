"""``latent service``"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from latent_cli.exits import FAILED
from latent_cli.options import Bind, DataDir, Json, Port, command_app
from latent_cli.output import answers, emit, notes, safe
from latent_cli.service import (
    Services,
    ServiceSpec,
    Systemd,
    install as install_service,
    service_command,
    services_of,
    uninstall as uninstall_service,
)
from latent_core.settings import load_settings

app = command_app()

PREFIX = "LLC_"
NOT_NEEDED = frozenset({"LLC_DATA_DIR", "LLC_URL"})
"""The service's file has the first, and only clients read the second."""


@app.callback()
def service() -> None:
    """Run `latent up` as a service that starts when you log in (systemd or launchd)."""


@app.command()
def install(
    data_dir: DataDir = None,
    port: Port = None,
    bind: Bind = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the service's file and write nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Install the service and start it. A second call changes nothing, or what the options change.

    It reads settings from the file .env in the data directory, not from your shell.
    """
    services = this_system()
    settings = load_settings()
    folder = (data_dir or settings.data_dir).expanduser().absolute()
    options = [
        *("--data-dir", str(folder)),
        *(("--port", str(port)) if port is not None else ()),
        *(("--bind", bind) if bind is not None else ()),
    ]
    command = service_command(Path(sys.executable), options)
    spec = ServiceSpec(command, folder, folder / "log" / "service.log")
    if dry_run:
        text = services.content(spec).decode()
        if as_json:
            emit({"file": str(services.file), "content": text})
            return
        notes().print(safe(f"# {services.file}"), soft_wrap=True)
        answers().print(safe(text, lines=True), end="", soft_wrap=True)
        return
    changed = install_service(services, spec)
    if as_json:
        emit({"file": str(services.file), "changed": changed})
        return
    answers().print(
        safe(f"{'wrote' if changed else 'unchanged:'} {services.file}; the service is started"),
        soft_wrap=True,
    )
    _remarks(services, folder)


@app.command()
def uninstall(as_json: Json = False) -> None:
    """Stop the service and remove it. Data stays."""
    services = this_system()
    removed = uninstall_service(services)
    if as_json:
        emit({"file": str(services.file), "removed": removed})
        return
    answers().print(
        safe(f"removed {services.file}" if removed else "the service is not installed"),
        soft_wrap=True,
    )


@app.command()
def status(as_json: Json = False) -> None:
    """Print whether the service is installed and runs. Exit 1 if it does not run."""
    services = this_system()
    installed = services.file.is_file()
    running = installed and services.is_running()
    if as_json:
        emit({"file": str(services.file), "installed": installed, "running": running})
    else:
        state = "runs" if running else "is stopped" if installed else "is not installed"
        answers().print(safe(f"the service {state} ({services.file})"), soft_wrap=True)
    if not running:
        raise typer.Exit(FAILED)


def this_system() -> Services:
    environ = os.environ  # noqa: TID251 - names the folders of another program
    return services_of(sys.platform, Path.home(), environ, os.getuid())


def _remarks(services: Services, folder: Path) -> None:
    given = os.environ.keys() - NOT_NEEDED  # noqa: TID251 - named, not read
    ours = sorted(name for name in given if name.startswith(PREFIX))
    if ours:
        notes().print(
            safe(f"not used by the service: {', '.join(ours)}; write them to {folder / '.env'}"),
            soft_wrap=True,
        )
    if isinstance(services, Systemd):
        notes().print(
            "It stops when you log out; `loginctl enable-linger` keeps it running and starts it at boot.",
            soft_wrap=True,
        )
