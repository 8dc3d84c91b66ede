"""What decides a document's chunks besides its content: if it changes, a folder listing requests the document again."""

from __future__ import annotations

import hashlib

import orjson

from latent_core.domain import versions
from latent_core.domain.manifest.model import Manifest


def recipe(manifest: Manifest) -> str:
    """Digest of the versions of parsers and chunker and of their settings. Not of the embedder: a refresh replaces vectors."""
    deciding = {
        "versions": versions.HANDLER,
        "chunker": manifest.chunker.model_dump(mode="json"),
        "max_pages": manifest.pdf.max_pages,
        "sanitize_rules": sorted(set(manifest.web.sanitize_rules)),
        "meta_from_path": manifest.ingest.meta_from_path,
        "custom_schema": manifest.metadata.custom_schema,
    }
    written = orjson.dumps(deciding, option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(written, digest_size=16).hexdigest()
