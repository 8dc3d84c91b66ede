"""Whether a page must be fetched again: only if its stored bytes would not give the live document."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import UUID

from pydantic import ValidationError

from latent_core.db.containers import Container
from latent_core.db.documents import documents
from latent_core.domain.errors import LatentError
from latent_core.domain.ids import Sha256
from latent_core.ingest.accept import IngestPayload, Validators
from latent_workers.deps import Deps
from latent_workers.ingest.prepare import fingerprint, fingerprint_of_scans
from latent_workers.ingest.web_page import as_known
from latent_workers.parse.registry import HEAD_BYTES, DetectedType, detect


def detected_in(path: Path, payload: IngestPayload) -> DetectedType:
    """The type of the file at ``path`` by its first bytes and its declared type; ``IngestFailed``."""
    with path.open("rb") as file:
        return detect(payload.filename, file.read(HEAD_BYTES), payload.mime)


async def known_page(
    deps: Deps, container: Container, doc_id: UUID, payload: IngestPayload
) -> IngestPayload | None:
    """``payload`` with the live bytes, if these give the live document; else None, and the page is fetched in full.

    For pages that scripts write, the server's validators say nothing.
    """
    if container.manifest.web.javascript:
        return None
    async with deps.stack.db.transaction() as conn:
        live = await documents.live_source(conn, doc_id)
    if live is None:
        return None
    try:
        validators = Validators.model_validate(live.validators)
        known = as_known(payload, live.sha256, validators)
        path = await deps.stack.blobs.of(container.bucket).local_copy(Sha256(live.sha256))
        detected = await asyncio.to_thread(detected_in, path, known)
    except (LatentError, ValidationError, OSError):
        return None  # whatever is wrong with what is kept, the page itself will tell
    model = (await deps.embedder(container.space)).model
    printed = fingerprint(container, model, live.sha256, detected, known)
    ocr = (await deps.ocr.engine()).key
    same = live.fingerprint in (printed, fingerprint_of_scans(printed, ocr))
    return known if same and (validators.etag or validators.last_modified) else None
