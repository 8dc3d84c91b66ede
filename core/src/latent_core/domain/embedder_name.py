"""What an embedder's name in a manifest tells of it."""

from __future__ import annotations

from typing import Final

OPENAI: Final = "openai/"
NOMIC: Final = "nomic/"
VLLM: Final = "vllm/"
JINA: Final = "jina/"
VLLM_WITHOUT_PREFIX: Final = frozenset({"nomic-embed-multimodal-7b"})
VISION: Final = "-vision-"
"""In the names of Nomic's models that read pictures."""


def reads_images(name: str) -> bool:
    """Whether the embedder ``name`` reads pictures, too."""
    if name.startswith(NOMIC):
        return VISION in name
    return name in VLLM_WITHOUT_PREFIX or name.startswith((VLLM, JINA))
