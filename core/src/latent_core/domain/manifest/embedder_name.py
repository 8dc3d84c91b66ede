"""What an embedder's name in a manifest tells of it."""

from __future__ import annotations

from typing import Final

LOCAL: Final = frozenset({"local", "local-int8"})
"""The built-in model, all-MiniLM-L6-v2. Its card says English; it knows code as far as its names are English."""
LOCAL_FOLDER: Final = "local:"
READ_BY_LOCAL: Final = frozenset({"english", "code"})
OPENAI: Final = "openai/"
NOMIC: Final = "nomic/"
VLLM: Final = "vllm/"
JINA: Final = "jina/"
VLLM_WITHOUT_PREFIX: Final = frozenset({"nomic-embed-multimodal-7b"})
VISION: Final = "-vision-"
"""In the names of Nomic's models that read pictures."""


def reads_language(name: str, language: str) -> bool:
    """Whether the embedder ``name`` was trained on texts in ``language``, as ``detect_language`` names it. Of all but
    the built-in ones it is believed: who named them chose them for these texts."""
    return name not in LOCAL or language in READ_BY_LOCAL


def is_local(name: str) -> bool:
    """Whether it runs in the process: then its files tell version and dimensions, and no other ones are to be had."""
    return name in LOCAL or name.startswith(LOCAL_FOLDER)


def reads_images(name: str) -> bool:
    """Whether the embedder ``name`` reads pictures, too."""
    if name.startswith(NOMIC):
        return VISION in name
    return name in VLLM_WITHOUT_PREFIX or name.startswith((VLLM, JINA))
