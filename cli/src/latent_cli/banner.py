"""What the commands that start processes have in common."""

from __future__ import annotations

from typing import Any

from latent_cli.output import answers, emit
from latent_cli.processes import Announce
from latent_core.settings import Settings, load_settings


def overridden(**given: Any) -> Settings:
    """The settings, with what the command line says instead."""
    return load_settings(**{name: value for name, value in given.items() if value is not None})


def announcing(*, as_json: bool) -> Announce:
    """Says on stdout where the gateway is and where its token is."""

    def announce(url: str, token_place: str) -> None:
        if as_json:
            emit({"url": url, "token": token_place}, line=True)
            return
        console = answers()
        console.print(f"latent answers at {url}; its token is in {token_place}")
        console.print("Ctrl-C stops it; `latent container list` in another terminal talks to it")

    return announce
