"""A document's meta: who says what of it, who wins, and what the container's schema makes of it.

The sender (flags, then a sidecar) wins over the path, the path over what stands in the file itself
(front matter, a record's fields).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import orjson

from latent_core.domain.custom_schema import CustomSchema, told
from latent_core.domain.errors import IngestFailed, Invalid
from latent_core.domain.manifest import Manifest
from latent_core.domain.path_meta import path_meta


def accepted_meta(manifest: Manifest, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What is said of a document before it is read; ``Invalid`` names the field the schema does not allow."""
    said = {**path_meta(manifest.ingest.meta_from_path, uri), **given}
    read, wrong = _schema(manifest).read(said, whole=False)
    if wrong:
        raise Invalid(f"{told(wrong)}; see metadata.custom_schema", fields=[v.field for v in wrong])
    return read


def published_meta(
    manifest: Manifest, inside: Mapping[str, Any], said: Mapping[str, Any]
) -> dict[str, Any]:
    """The whole meta of a document that is about to be visible; ``IngestFailed`` names the field.

    ``inside`` stands in the file itself, ``said`` is what was accepted.
    """
    read, wrong = _schema(manifest).read({**inside, **said}, whole=True)
    if wrong:
        raise IngestFailed(
            f"{told(wrong)}; see metadata.custom_schema", fields=[v.field for v in wrong]
        )
    return read


def given_digest(given: Mapping[str, Any]) -> str | None:
    """By which sender and server agree on whether the sender's meta has changed; None when there is none."""
    if not given:
        return None
    return hashlib.sha256(orjson.dumps(dict(given), option=orjson.OPT_SORT_KEYS)).hexdigest()


def _schema(manifest: Manifest) -> CustomSchema:
    return CustomSchema.of(manifest.metadata.custom_schema)
