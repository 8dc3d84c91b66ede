"""What tests, benchmarks and scripts stand on: servers, oracles, contracts and harnesses. No wheel holds it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]
"""Child processes run ``python -m tests.support…`` from here."""
MANIFESTS: Final = REPOSITORY / "core/src/latent_core/domain/manifest/shipped"
"""The shipped examples with their golden queries; templates for kinds of content are below it."""
LIGHTHOUSE: Final = REPOSITORY / "cli/src/latent_cli/data/samples/lighthouse"
"""The documents of `latent samples`."""
