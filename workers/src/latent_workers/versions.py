"""Versions of what makes chunks: see ``latent_core.domain.versions``, where listings can compare them too."""

from __future__ import annotations

from latent_core.domain.versions import HANDLER

__all__ = ["HANDLER"]
