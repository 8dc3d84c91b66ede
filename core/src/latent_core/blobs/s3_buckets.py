"""The buckets of an installation: its own, and those that manifests name, on one server with one key (ADR 0027)."""

from __future__ import annotations

from typing_extensions import override

from latent_core.blobs.port import BlobStores
from latent_core.blobs.s3 import S3BlobStore
from latent_core.domain.errors import LatentError
from latent_core.domain.installation import Installation, MarkerPolicy


class S3BlobStores(BlobStores):
    """Stores of buckets are opened on first use and share the connections of the own one."""

    def __init__(self, own: S3BlobStore, own_name: str, installation: Installation) -> None:
        """``own_name``: LLC_S3_BUCKET."""
        self._own = own
        self._own_name = own_name
        self._installation = installation
        self._named: dict[str, S3BlobStore] = {}

    @property
    @override
    def own(self) -> S3BlobStore:
        return self._own

    @override
    def bucket_of(self, named: str | None) -> str:
        return "" if named in (None, self._own_name) else named

    @override
    def of(self, bucket: str) -> S3BlobStore:
        if not bucket:
            return self._own
        if bucket not in self._named:
            self._named[bucket] = self._store(bucket, MarkerPolicy.REQUIRE)
        return self._named[bucket]

    @override
    async def prepare(self, bucket: str, policy: MarkerPolicy) -> None:
        if not bucket:
            return
        try:
            await self._store(bucket, policy).settle()
        except LatentError as error:
            error.message = (
                f"bucket '{bucket}' of storage.blobs.bucket cannot be used: {error.message}"
            )
            error.args = (error.message,)
            raise

    @override
    async def close(self) -> None:
        await self._own.close()

    def _store(self, bucket: str, policy: MarkerPolicy) -> S3BlobStore:
        return S3BlobStore(self._own.server, bucket, self._installation, policy, named=True)
