"""Sample documents that come with the command line (``latent_cli/data``)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

DATA: Final = files("latent_cli") / "data"


@contextmanager
def sample_folder(name: str) -> Iterator[Path]:
    """The folder of sample documents of that name."""
    with as_file(DATA / "samples" / name) as folder:
        yield folder
