"""Whether chunks follow the window of another embedder."""

from __future__ import annotations

from latent_core.domain.manifest.model import Chunker


def longer_window(chunker: Chunker, before: int | None, window: int) -> int | None:
    """``before``, the window of the live embedder in tokens, if chunks for ``window`` are larger than chunks for it.
    None otherwise, and when that embedder is no longer available: what its chunks were made for is not known then."""
    if before is None:
        return None
    return before if chunker.tokens(before) < chunker.tokens(window) else None
