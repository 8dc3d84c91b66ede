"""Whether chunks follow the window of another embedder."""

from __future__ import annotations

from collections.abc import Callable

from latent_core.domain.errors import LatentError
from latent_core.domain.manifest.model import Chunker
from latent_core.models.embedding.port import Embedder


def longer_window(chunker: Chunker, live: Callable[[], Embedder], window: int) -> int | None:
    """The window of the live embedder, in tokens, if chunks for ``window`` are larger than chunks for it. None
    otherwise, and when that embedder is no longer available: what its chunks were made for is not known then."""
    try:
        before = live().model.window
    except LatentError:
        return None
    return before if chunker.tokens(before) < chunker.tokens(window) else None
