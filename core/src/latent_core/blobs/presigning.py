"""Links straight to the S3 server, for readers who can reach it (``LLC_S3_PUBLIC_ENDPOINT``).

The signature binds the host, so that they are signed for the public endpoint, not for the one we use.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from latent_core.blobs.s3 import S3Address, connect, key_of
from latent_core.blobs.signing import MAX_SECONDS
from latent_core.domain.ids import Sha256

SHOWN: Final = frozenset({"image/webp", "image/png", "image/jpeg", "application/pdf"})
"""May be opened by a browser; all else is saved. The server adds no ``Content-Security-Policy``."""


class Presigner:
    """Signs by itself: nothing is sent."""

    def __init__(self, public: S3Address) -> None:
        self._client, self._http = connect(public)
        self._bucket = public.bucket

    def link(self, sha256: str, *, seconds: int, mime: str, disposition: str, filename: str) -> str:
        """A link that is valid for ``seconds``, at most five minutes."""
        return self._client.presigned_get_object(
            self._bucket,
            key_of(Sha256(sha256)),
            expires=timedelta(seconds=max(1, min(seconds, MAX_SECONDS))),
            response_headers={
                "response-content-type": mime,
                "response-content-disposition": _disposition(mime, disposition, filename),
            },
        )

    def close(self) -> None:
        self._http.clear()


def _disposition(mime: str, disposition: str, filename: str) -> str:
    shown = "inline" if disposition == "inline" and mime in SHOWN else "attachment"
    name = "".join(c if c.isascii() and (c.isalnum() or c in "._- ") else "_" for c in filename)
    return f'{shown}; filename="{name}"' if name else shown
