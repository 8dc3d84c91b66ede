"""What a registry of embedders offers besides ``model_of`` and ``for_space``, for stand-ins that have these two."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from latent_core.domain.manifest.model import Manifest


class StandInModels:
    async def measure(self, manifest: Manifest) -> None:
        """There is nothing to ask."""

    @asynccontextmanager
    async def held(self, name: str) -> AsyncIterator[None]:
        """There is nothing to remove."""
        yield

    async def opened(self, space: Any) -> Any:
        return self.for_space(space)  # type: ignore[attr-defined]
