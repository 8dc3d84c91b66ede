"""What ``latent up`` and ``latent gateway`` print when they answer requests."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

from latent_cli.output import answers, emit, notes
from latent_core.runtime.data_directory import DataDirectory
from latent_core.settings import Settings

if TYPE_CHECKING:
    from latent_gateway.app import Announce, StartedGateway


def is_quiet(*, as_json: bool, verbose: bool) -> bool:
    """Whether the log stays in its file: programs and pipes get every line on stderr."""
    return sys.stderr.isatty() and not as_json and not verbose


def starting(settings: Settings) -> None:
    """Say what takes a few seconds."""
    notes().print(f"starting in {settings.data_dir} …", soft_wrap=True)


def announcing(*, as_json: bool) -> Announce:
    """A callback that prints the address of the gateway and the location of its token on stdout."""

    def announce(started: StartedGateway) -> None:
        if as_json:
            emit({"url": started.url, "token": started.token_place}, line=True)
            return
        console = answers()
        console.print(f"latent runs at {started.url}; its token is in {started.token_place}")
        console.print("Press Ctrl-C to stop it; try `latent container list` in another terminal")

    return announce


def screen(settings: Settings) -> Announce:
    """A callback that prints one screen for a person. Only a terminal gets the sign-in link: what else stdout is, may
    keep it."""

    def announce(started: StartedGateway) -> None:
        if not sys.stdout.isatty():
            announcing(as_json=False)(started)
            if (exports := export_line(settings, started)) is not None:
                answers().print(f"other terminals need: {exports}", soft_wrap=True)
            return
        console = answers()
        for name, value in screen_lines(settings, started):
            console.print(f"  {name:<9} {value}", soft_wrap=True)

    return announce


def screen_lines(settings: Settings, started: StartedGateway) -> list[tuple[str, str]]:
    """The screen as names and values. Makes a new sign-in link."""
    folder = DataDirectory(settings.data_dir)
    exports = export_line(settings, started)
    lines = [("address", started.url)]
    if started.sign_in_link is not None:
        lines += [
            ("console", started.sign_in_link()),
            ("", "signs you in once, within 15 minutes, in a browser on this machine"),
        ]
    if exports is not None:
        lines.append(("shells", f"{exports}   (first, for the commands below)"))
    lines += [
        ("agent", "latent connect claude-code"),
        ("documents", "latent container create notes, then latent ingest FOLDER -c notes --wait"),
        ("data", f"{folder.path}; token in {started.token_place}"),
    ]
    if settings.addresses_missing:
        lines.append(("log", f"{folder.log_file}; --verbose shows it here"))
    return [*lines, ("", "Press Ctrl-C to stop.")]


def export_line(settings: Settings, started: StartedGateway) -> str | None:
    """What other shells need before the commands of the screen reach this gateway; None if they do. ``--port``,
    ``--bind`` and ``--data-dir`` hold for this process alone."""
    theirs, data_dir = Settings(), settings.data_dir.absolute()
    values = {}
    if theirs.url is None and theirs.gateway_url != started.url:
        values["LLC_URL"] = started.url
    if theirs.data_dir.absolute() != data_dir:
        values["LLC_DATA_DIR"] = str(data_dir)
    words = [f"{name}={shlex.quote(value)}" for name, value in values.items()]
    return " ".join(["export", *words]) if words else None
