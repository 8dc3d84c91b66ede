"""Archives for tests that need one and not what is in it."""

from __future__ import annotations

import io
from datetime import UTC, datetime

from latent_core.domain import versions
from latent_core.domain.manifest.model import Manifest
from latent_core.transfer.records import (
    FORMAT,
    FORMAT_VERSION,
    HEADER,
    MANIFEST,
    Header,
    SpaceRecord,
)
from latent_core.transfer.writer import ArchiveWriter


def header_of(manifest: Manifest) -> Header:
    return Header(
        format=FORMAT,
        format_version=FORMAT_VERSION,
        container_id=manifest.id,
        created_at=datetime(2026, 3, 1, tzinfo=UTC),
        space=SpaceRecord(embedder=manifest.embedder, version="1", dims=manifest.dims or 4),
        handler=versions.HANDLER,
        analyser=versions.ANALYSER,
        vectors=True,
        blobs=True,
    )


def empty_archive(manifest: Manifest) -> bytes:
    """Of a container without documents."""
    out = io.BytesIO()
    writer = ArchiveWriter(out)
    writer.add(HEADER, header_of(manifest).model_dump_json().encode())
    writer.add(MANIFEST, manifest.model_dump_json().encode())
    writer.close()
    return out.getvalue()
