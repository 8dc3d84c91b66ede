"""Files that are whole after a crash: synced, and renamed into place."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from latent_core.vectors.edge.protocol import Buffer


def replace_synced(file: Path, parts: Iterable[Buffer]) -> None:
    """Replace ``file`` by one of these parts: afterwards the old or the new one is there, whole."""
    draft = file.with_name(f"{file.name}.new")
    with draft.open("wb") as out:
        for part in parts:
            out.write(part)
        out.flush()
        os.fsync(out.fileno())
    draft.replace(file)
    sync_folder(file.parent)


def sync_folder(folder: Path) -> None:
    """Sync created, renamed and removed names in ``folder`` to disk."""
    _sync(folder)


def sync_tree(folder: Path) -> None:
    """Sync ``folder`` and everything below it."""
    for path, _, files in os.walk(folder):
        for name in files:
            _sync(os.path.join(path, name))
        _sync(path)


def _sync(path: Path | str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
