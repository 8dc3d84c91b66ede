"""Versions of the code that makes chunks. Raise one when its output changes: documents that are added again are then
ingested again, and a listing requests documents that an older version made."""

from __future__ import annotations

from typing import Final

from latent_core.domain.errors import Conflict

PARSERS: Final = 2
CHUNKER: Final = 2
ANALYSER: Final = 2
HANDLER: Final = f"{PARSERS}.{CHUNKER}.{ANALYSER}"
"""As in the lineage."""


def too_old(place: str, setting: str) -> Conflict:
    """The error for a database older than the revision ``0001_initial``, with what to do."""
    return Conflict(
        f"{place} was written by a version older than migration 0001_initial. This version cannot read it and "
        "has changed nothing. Export each container with the version that wrote it (latent export CONTAINER --to "
        f"FILE), start this version on empty stores ({setting}), then import each file (latent import FILE)"
    )
