"""The dependencies of job handlers, created by the composition root."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from latent_core.db.containers import Space
from latent_core.models.embedding.port import Embedder
from latent_core.search.embed import QueryCache
from latent_core.search.limiter import SearchLimiter
from latent_core.search.render import NoLinks
from latent_core.search.service import SearchService
from latent_core.settings import Settings
from latent_core.stack import Stack
from latent_workers.embed import DocumentEmbedding
from latent_workers.fetch.guard import Resolver, system_resolver
from latent_workers.ocr.reader import PageReader
from latent_workers.publishing import Publisher
from latent_workers.sandbox.budget import Budget
from latent_workers.sandbox.pool import Sandbox

WALL_FACTOR: Final = 2.0
"""The CPU limit times this is the wall-clock limit, so that a busy machine does not fail a parser."""


@dataclass(frozen=True, slots=True)
class Deps:
    settings: Settings
    stack: Stack
    sandbox: Sandbox
    embedding: DocumentEmbedding
    renderers: Sandbox
    """Children that draw pages."""
    publishing: Publisher
    resolve: Resolver = system_resolver
    """Resolves the hosts of web pages."""
    ocr: PageReader = field(default_factory=lambda: PageReader("off"))

    async def embedder(self, space: Space) -> Embedder:
        return await self.stack.embedders.opened(space)

    def search_service(self, seconds: float | None = None) -> SearchService:
        """A search service for one job. Its own limiter keeps measurements free of waits for other searches.
        ``seconds``: the deadline of each search; default the setting."""
        return SearchService(
            self.stack.search_stores(QueryCache()),
            NoLinks(),
            seconds or self.settings.search_seconds,
            self.stack.metrics,
            SearchLimiter(self.settings.search_wait_seconds),
        )

    def parse_budget(self) -> Budget:
        """The budget of the parser for one document."""
        seconds = self.settings.parse_seconds
        return Budget(
            cpu_seconds=math.ceil(seconds),
            wall_seconds=WALL_FACTOR * seconds,
            memory_bytes=self.settings.parse_memory_bytes,
        )
