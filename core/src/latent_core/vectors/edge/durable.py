"""Files that are whole after a crash: synced, and renamed into place."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from latent_core.vectors.edge.protocol import Buffer

DRAFT: Final = ".new"
"""Suffix of a file that is being written."""


def replace_synced(file: Path, parts: Iterable[Buffer]) -> None:
    """Replace ``file`` by one of these parts: afterwards the old or the new one is there, whole."""
    draft = _written(file, parts)
    sync_path(draft)
    draft.replace(file)
    sync_path(file.parent)


def replace_unsynced(file: Path, parts: Iterable[Buffer]) -> None:
    """Replace ``file`` by one of these parts. After a crash of the system it may be incomplete: for what has a checksum
    and can be made again."""
    _written(file, parts).replace(file)


def _written(file: Path, parts: Iterable[Buffer]) -> Path:
    """The draft of ``file``, with these parts."""
    draft = file.with_name(file.name + DRAFT)
    with draft.open("wb") as out:
        for part in parts:
            out.write(part)
    return draft


def sync_tree(folder: Path) -> None:
    """Sync ``folder`` and everything below it."""
    for path, _, files in os.walk(folder):
        for name in files:
            sync_path(os.path.join(path, name))
        sync_path(path)


def sync_path(path: Path | str) -> None:
    """Sync a file; of a folder, the names in it that were created, renamed or removed."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
