"""Presigned S3 addresses, apart from signed links: their client is of the extra `servers`."""

from __future__ import annotations

from datetime import timedelta

from latent_core.blobs.s3 import S3Address, connect, key_of
from latent_core.blobs.signing import MAX_SECONDS, content_disposition
from latent_core.domain.ids import Sha256


class Presigner:
    """Signs locally, without a request."""

    def __init__(self, public: S3Address, installation_id: str) -> None:
        self._client, self._http = connect(public)
        self._bucket = public.bucket
        self._installation_id = installation_id

    def link(
        self,
        sha256: str,
        *,
        seconds: int,
        mime: str,
        disposition: str,
        filename: str,
        bucket: str = "",
    ) -> str:
        """A link that is valid for ``seconds``, at most five minutes. ``bucket``: one that a manifest names."""
        return self._client.presigned_get_object(
            bucket or self._bucket,
            key_of(self._installation_id, Sha256(sha256)),
            expires=timedelta(seconds=max(1, min(seconds, MAX_SECONDS))),
            response_headers={
                "response-content-type": mime,
                "response-content-disposition": content_disposition(mime, disposition, filename),
            },
        )

    def close(self) -> None:
        self._http.clear()
