"""Versions of what makes chunks. Raise one when its output changes: a document that is added again is then
made anew, and a listing asks for those that an older version made."""

from __future__ import annotations

from typing import Final

from latent_core.domain.errors import Conflict

PARSERS: Final = 2
CHUNKER: Final = 2
ANALYSER: Final = 2
HANDLER: Final = f"{PARSERS}.{CHUNKER}.{ANALYSER}"
"""As the lineage tells it."""


def too_old(place: str, setting: str) -> Conflict:
    """Why a database from before the revision ``0001_initial`` is not used, and what to do."""
    return Conflict(
        f"{place} was written by a version older than migration 0001_initial. This version cannot read it and "
        "has changed nothing. Export each container with the version that wrote it (latent export CONTAINER --to "
        f"FILE), start this version on empty stores ({setting}), then import each file (latent import FILE)"
    )
