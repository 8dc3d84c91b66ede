"""Installations for tests of the adapters of servers."""

from __future__ import annotations

from typing import Final

from latent_core.domain.installation import Installation

OURS: Final = Installation("0123456789ab", "7000000000000000001/16384")
COPY: Final = Installation(OURS.id, "7000000000000000001/16999")
"""The same installation in a copied database."""
OTHER: Final = Installation("ba9876543210", "7000000000000000001/17000")
