"""Settings and start-up message of the commands that start processes."""

from __future__ import annotations

from typing import Any

from latent_cli.output import answers, emit
from latent_cli.processes import Announce
from latent_core.settings import Settings, load_settings


def overridden(**given: Any) -> Settings:
    """The settings, overridden by the options of the command line."""
    return load_settings(**{name: value for name, value in given.items() if value is not None})


def announcing(*, as_json: bool) -> Announce:
    """A callback that prints the address of the gateway and the location of its token on stdout."""

    def announce(url: str, token_place: str) -> None:
        if as_json:
            emit({"url": url, "token": token_place}, line=True)
            return
        console = answers()
        console.print(f"latent runs at {url}; its token is in {token_place}")
        console.print("Press Ctrl-C to stop it; try `latent container list` in another terminal")

    return announce
