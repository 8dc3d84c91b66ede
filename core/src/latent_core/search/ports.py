"""What a search needs of others."""

from __future__ import annotations

from typing import Protocol

from latent_core.embedding.port import Embedder
from latent_core.registry.containers import Space


class Embedders(Protocol):
    """Gives the embedder of a space; ``Unavailable`` says what is missing when it is not configured."""

    def for_space(self, space: Space) -> Embedder: ...
