"""Exit codes of ``latent``."""

from __future__ import annotations

from typing import Final

from latent_client.errors import Unreachable
from latent_core.domain.errors import Invalid, LatentError

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
"""The command, or what it was given, cannot be understood."""
UNREACHABLE: Final = 3
FOUND: Final = 4
"""A job failed or was cancelled, or doctor found differences."""


def code_of(error: LatentError) -> int:
    match error:
        case Unreachable():
            return UNREACHABLE
        case Invalid():
            return USAGE
    return FAILED
