"""Hub ids of models that docs/models.md lists, by their names in manifests: messages name the whole command."""

from __future__ import annotations

from typing import Final

KNOWN: Final = {
    hub_id.rpartition("/")[2].lower(): hub_id
    for hub_id in (
        "nomic-ai/nomic-embed-text-v1.5",
        "MongoDB/mdbr-leaf-ir",
        "BAAI/bge-small-en-v1.5",
        "BAAI/bge-base-en-v1.5",
        "intfloat/multilingual-e5-small",
        "intfloat/multilingual-e5-base",
        "Alibaba-NLP/gte-base-en-v1.5",
        "ibm-granite/granite-embedding-30m-english",
        "Snowflake/snowflake-arctic-embed-s",
        "Snowflake/snowflake-arctic-embed-m",
        "jinaai/jina-embeddings-v2-base-code",
        "Xenova/clip-vit-base-patch32",
        "Xenova/siglip-base-patch16-224",
        "onnx-community/siglip2-base-patch16-224-ONNX",
    )
}
NEED_E5_PROMPTS: Final = frozenset({"multilingual-e5-small", "multilingual-e5-base"})
PAIRS: Final = {
    "nomic-ai/nomic-embed-text-v1": "nomic-ai/nomic-embed-vision-v1",
    "nomic-ai/nomic-embed-text-v1.5": "nomic-ai/nomic-embed-vision-v1.5",
}
"""Of a model of texts, the model that embeds pictures in its space."""
