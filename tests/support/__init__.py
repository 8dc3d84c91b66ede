"""What tests, benchmarks and scripts stand on: servers, oracles, contracts and harnesses. No wheel holds it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]
"""Child processes run ``python -m tests.support…`` from here."""
_SHIPPED: Final = REPOSITORY / "cli" / "src" / "latent_cli" / "data"
MANIFESTS: Final = _SHIPPED / "manifests"
"""The shipped manifests with their golden queries."""
LIGHTHOUSE: Final = _SHIPPED / "samples" / "lighthouse"
"""The documents of `latent samples`."""
