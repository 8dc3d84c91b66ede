"""Manifest keys that this installation does not support: they are refused, never ignored (DESIGN §5).

An archive may come from an installation that supports more. Then an import removes the keys and reports them.
"""

from __future__ import annotations

from typing import Final

from latent_core.domain.errors import Invalid, Issue, IssueCode
from latent_core.domain.manifest.model import Manifest, Storage, Switch

OFF: Final = Switch()


def check_offered(manifest: Manifest, bucket: str | None) -> list[Issue]:
    """Raise ``Invalid`` for a key that would have no effect; returns issues for the sender.

    ``bucket`` holds all blobs; None if they are files. A blob is stored once for all containers that refer to it,
    so a container cannot have a separate bucket.
    """
    if refused := lacking(manifest, bucket):
        raise Invalid("; ".join(refused.values()), keys=list(refused))
    named = manifest.storage.blobs.bucket
    if named is None or named == bucket:
        return []
    message = f"storage.blobs.bucket has no effect: this installation stores blobs as files. On S3, LLC_S3_BUCKET must be '{named}'"
    return [Issue(code=IssueCode.POLICY, message=message)]


def lacking(manifest: Manifest, bucket: str | None) -> dict[str, str]:
    """Unsupported keys, each with its error message."""
    found: dict[str, str] = {}
    named = manifest.storage.blobs.bucket
    if bucket is not None and named not in (None, bucket):
        found["storage.blobs.bucket"] = (
            f"storage.blobs.bucket is '{named}', but this installation stores all blobs in bucket '{bucket}' "
            "(LLC_S3_BUCKET). Remove the key, or name that bucket"
        )
    for key, switch in (("summaries", manifest.summaries), ("extraction", manifest.extraction)):
        if switch.enabled:
            found[f"{key}.enabled"] = (
                f"{key}.enabled is true, but this version does not support it. Remove the key"
            )
    return found


def settled(manifest: Manifest, bucket: str | None) -> tuple[Manifest, list[str]]:
    """The manifest without unsupported keys, and these keys."""
    refused = lacking(manifest, bucket)
    changes = {
        "storage.blobs.bucket": ("storage", Storage()),
        "summaries.enabled": ("summaries", OFF),
        "extraction.enabled": ("extraction", OFF),
    }
    return manifest.model_copy(update=dict(changes[key] for key in refused)), list(refused)
