"""Versions of the code that makes chunks. Raise one when its output changes: documents that are added again are then
ingested again, and a listing requests documents that an older version made."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import orjson

from latent_core.domain.chunk import SourceType
from latent_core.domain.errors import Conflict
from latent_core.domain.manifest.model import Manifest, Transcripts

PARSERS: Final = 3
CHUNKER: Final = 2
ANALYSER: Final = 3
CODE: Final = 2
"""Of all three for source code alone, so that other documents are not read again."""
HANDLER: Final = f"{PARSERS}.{CHUNKER}.{ANALYSER}"
"""As in the lineage."""


def too_old(place: str, setting: str) -> Conflict:
    """The error for a database older than the revision ``0001_initial``, with what to do."""
    return Conflict(
        f"{place} was written by a version older than migration 0001_initial. This version cannot read it and "
        "has changed nothing. Export each container with the version that wrote it (latent export CONTAINER --to "
        f"FILE), start this version on empty stores ({setting}), then import each file (latent import FILE)"
    )


def ending(source_type: str | None) -> str:
    """What the recipe of a document of this type adds to that of its container."""
    return f"-code{CODE}" if source_type == SourceType.CODE else ""


def recipe(manifest: Manifest) -> str:
    """Digest of the versions of parsers and chunker and of their settings. Not of the embedder: a refresh replaces vectors."""
    deciding: dict[str, Any] = {
        "versions": HANDLER,
        "chunker": manifest.chunker.model_dump(mode="json"),
        "max_pages": manifest.pdf.max_pages,
        "sanitize_rules": sorted(set(manifest.web.sanitize_rules)),
        "meta_from_path": manifest.ingest.meta_from_path,
        "custom_schema": manifest.metadata.custom_schema,
    }
    if manifest.ingest.transcripts != Transcripts():
        deciding["transcripts"] = manifest.ingest.transcripts.model_dump()
    written = orjson.dumps(deciding, option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(written, digest_size=16).hexdigest()
