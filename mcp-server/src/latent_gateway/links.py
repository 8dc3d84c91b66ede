"""Signed, short-lived links to blobs: to the gateway's own route, or straight to the S3 server where readers reach it."""

from __future__ import annotations

from dataclasses import dataclass
from time import time
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from latent_core.blobs.signing import Signer

if TYPE_CHECKING:
    from latent_core.blobs.signing import Presigner

TTL_SECONDS: Final = 300


@dataclass(frozen=True, slots=True)
class BlobLinks:
    """Links below ``base`` (scheme, host and port, without a slash at the end)."""

    signer: Signer
    base: str
    presigner: Presigner | None = None

    def page_image(self, sha256: str, mime: str, filename: str) -> str:
        return self.link(sha256, mime, "inline", filename)

    def link(self, sha256: str, mime: str, disposition: str, filename: str) -> str:
        if self.presigner is not None:
            return self.presigner.link(
                sha256, seconds=TTL_SECONDS, mime=mime, disposition=disposition, filename=filename
            )
        query = self.signer.sign(
            sha256,
            expires_at=int(time()) + TTL_SECONDS,
            mime=mime,
            disposition=disposition,
            filename=filename,
        )
        return f"{self.base}/v1/blobs/{sha256}?{urlencode(query)}"
