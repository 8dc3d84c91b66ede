"""Properties of an embedder that follow from its name in a manifest."""

from __future__ import annotations

from typing import Final

LOCAL: Final = frozenset({"local", "local-int8"})
"""Languages of the built-in model, all-MiniLM-L6-v2: English, and code with English names."""
LOCAL_FOLDER: Final = "local:"
READ_BY_LOCAL: Final = frozenset({"english", "code"})
OPENAI: Final = "openai/"
NOMIC: Final = "nomic/"
VLLM: Final = "vllm/"
JINA: Final = "jina/"
VLLM_WITHOUT_PREFIX: Final = frozenset({"nomic-embed-multimodal-7b"})
VISION: Final = "-vision-"
"""Part of the names of Nomic's models that read images."""


def reads_language(name: str, language: str) -> bool:
    """Whether the embedder ``name`` was trained on texts in ``language``, as ``detect_language`` names it. Assumed for
    all but the built-in ones, since a person chose them for these texts."""
    return name not in LOCAL or language in READ_BY_LOCAL


def is_local(name: str) -> bool:
    """Whether it runs in the process: then its files define the version and dimensions."""
    return name in LOCAL or name.startswith(LOCAL_FOLDER)


def reads_images(name: str) -> bool:
    """Whether the embedder ``name`` also reads images."""
    if name.startswith(NOMIC):
        return VISION in name
    return name in VLLM_WITHOUT_PREFIX or name.startswith((VLLM, JINA))
