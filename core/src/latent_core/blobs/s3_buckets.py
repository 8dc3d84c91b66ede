"""The buckets of an installation: its own, and those that manifests name, on one server with one key (ADR 0027)."""

from __future__ import annotations

from minio.helpers import check_bucket_name
from typing_extensions import override

from latent_core.blobs.port import BlobStores
from latent_core.blobs.s3 import BUCKET, S3BlobStore
from latent_core.blobs.s3_errors import KeyRefused
from latent_core.domain.errors import Conflict, Invalid, Misconfigured
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
        if named is None or named == self._own_name:
            return ""
        try:
            if not BUCKET.fullmatch(named):
                raise ValueError("a bucket's name has 3 to 63 of a-z, 0-9, '-' and '.'")
            check_bucket_name(named, strict=True, s3_check=True)
        except ValueError as exc:
            raise Invalid(f"storage.blobs.bucket: {exc}", key="storage.blobs.bucket") from exc
        return named

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
        except (Misconfigured, KeyRefused) as error:
            # The own bucket accepts the same key.
            raise Conflict(
                f"bucket '{bucket}' of storage.blobs.bucket cannot be used: {error.message}"
            ) from error

    @override
    async def adopt(self, bucket: str, *, by_name: bool) -> None:
        holder = await self._store(bucket, MarkerPolicy.REQUIRE).holder()
        expected = (None, self._installation.holder, self._own.former_holder)
        if not by_name and holder not in expected:
            raise Conflict(
                f"bucket '{bucket}' belongs to database {holder}, and the own bucket did not: if that database is no "
                f"longer used, run `latent adopt --bucket {bucket}`",
                bucket=bucket,
            )
        await self.prepare(bucket, MarkerPolicy.TAKE_OVER)

    @override
    async def close(self) -> None:
        await self._own.close()

    def _store(self, bucket: str, policy: MarkerPolicy) -> S3BlobStore:
        return S3BlobStore(self._own.server, bucket, self._installation, policy, named=True)
