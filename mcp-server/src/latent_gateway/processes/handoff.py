"""What a further gateway process gets from the first one when it starts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from latent_core.backends import SharedServices
from latent_core.settings import Settings
from latent_core.telemetry.metrics import bound


@dataclass(frozen=True, slots=True)
class Handoff:
    """Pickled into the standard input of the process, since it has secrets: an environment or arguments are visible to
    others."""

    settings: Settings
    services: SharedServices
    log_file: Path | None
    shown: int
    """The lowest level of log lines on stderr."""
    number: int = 1

    def of(self, number: int) -> Self:
        """For the process of that number. It has a folder of its own for temporary files."""
        folders = self.services.folders
        own = replace(folders, tmp=folders.tmp / f"process-{number}")
        return replace(self, services=replace(self.services, folders=own), number=number)


@contextmanager
def numbered(number: int, size: int) -> Iterator[None]:
    """Add the number of the process to its log lines, if there are several."""
    if size == 1:
        yield
    else:
        with bound(process_no=number):
            yield
