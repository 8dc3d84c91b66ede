"""Names of the participants and of the ways to search."""

from __future__ import annotations

from typing import Final

from latent_core.domain.manifest.model import SearchMode

MODES: Final = ("words", "vectors", "hybrid")
OURS: Final = "latent"
OURS_BY_RANKS: Final = "latent_rrf"
"""Ours with reciprocal rank fusion, as most peers fuse; quality only."""
OUR_MODES: Final = {
    "words": SearchMode.LEXICAL,
    "vectors": SearchMode.SEMANTIC,
    "hybrid": SearchMode.HYBRID,
}
PEERS: Final = ("bm25s", "lancedb", "sqlite", "chroma", "qdrant", "langchain")
LARGE: Final = "txtai"
"""Measured only where it is named: it needs PyTorch, which is 6 GB with what that needs."""
SERVER: Final = "qdrant_server"
"""Measured only where its address is given."""
TITLES: Final = {
    OURS: "Latent Containers",
    OURS_BY_RANKS: "by RRF",
    "bm25s": "bm25s",
    "lancedb": "LanceDB",
    "sqlite": "SQLite",
    "chroma": "Chroma",
    "qdrant": "qdrant-client",
    SERVER: "Qdrant server",
    "langchain": "LangChain",
    LARGE: "txtai",
}


def title(name: str) -> str:
    """A participant's name as its project writes it."""
    return TITLES.get(name, name)
