"""What job handlers stand on: handed in by the composition root."""

from __future__ import annotations

from dataclasses import dataclass

from latent_core.embedding.port import Embedder
from latent_core.registry.containers import Space
from latent_core.settings import Settings
from latent_core.stack import Stack
from latent_workers.embed import DocumentEmbedding
from latent_workers.sandbox.pool import Sandbox


@dataclass(frozen=True, slots=True)
class Deps:
    settings: Settings
    stack: Stack
    sandbox: Sandbox
    embedding: DocumentEmbedding

    def embedder(self, space: Space) -> Embedder:
        return self.stack.embedders.for_space(space)
