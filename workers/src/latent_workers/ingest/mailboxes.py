"""Mailboxes: files whose messages are documents of their own."""

from __future__ import annotations

from pathlib import Path

from latent_core.ingest.accept import IngestPayload
from latent_workers.ingest.refetch import detected_in
from latent_workers.parse.signatures import MAILBOX_MIME


def is_mailbox(path: Path, payload: IngestPayload) -> bool:
    """By its name, its declared type or its first line. Blocking; ``IngestFailed`` for a file that cannot be read."""
    return payload.source_sha256 is None and detected_in(path, payload).mime == MAILBOX_MIME
