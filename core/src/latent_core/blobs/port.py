"""Bytes by content hash: originals, page images, thumbnails, exports."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Protocol

from latent_core.domain.ids import Sha256
from latent_core.domain.installation import MarkerPolicy


class BlobStore(Protocol):
    """Content-addressed store. A blob is complete or absent: an interrupted write leaves nothing under its name.

    Calls raise ``Unavailable`` when the store is unreachable, ``StoreFull`` when it is full.
    """

    @property
    def bucket(self) -> str:
        """The bucket in the rows of its blobs: "" for the installation's own, else the name in a manifest."""
        ...

    async def put(self, data: bytes) -> Sha256:
        """Store ``data`` durably under its hash; storing the same bytes again is cheap."""
        ...

    async def put_file(self, path: Path, sha256: Sha256) -> None:
        """Store the file at ``path``, whose hash the caller computed. May move the file."""
        ...

    async def get(self, sha256: Sha256) -> bytes:
        """The whole blob; ``NotFound`` when absent."""
        ...

    def stream(
        self, sha256: Sha256, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        """Bytes ``start`` to ``end`` (exclusive) in pieces; ``NotFound`` when absent."""
        ...

    async def size(self, sha256: Sha256) -> int | None:
        """Length in bytes, or None when absent."""
        ...

    async def stored_at(self, sha256: Sha256) -> datetime | None:
        """When the blob was last written, by the store's clock; None when absent."""
        ...

    async def local_copy(self, sha256: Sha256) -> Path:
        """A local read-only file with these bytes for parsers; ``NotFound`` when absent."""
        ...

    async def delete(self, sha256: Sha256) -> None:
        """Remove the blob; silent when absent."""
        ...

    def hashes(self) -> AsyncIterator[Sha256]:
        """The hashes of all blobs, in any order (for checks)."""
        ...

    async def verify(self) -> None:
        """``MarkerMismatch`` unless the store is this installation's, read now."""
        ...

    async def close(self) -> None: ...


class BlobStores(Protocol):
    """The blob stores of an installation: its own, and one per bucket that a manifest names (ADR 0027)."""

    @property
    def own(self) -> BlobStore: ...

    def bucket_of(self, named: str | None) -> str:
        """The bucket of a container whose manifest names ``named``: "" for the installation's own. ``Invalid`` for what is
        not the name of a bucket."""
        ...

    def of(self, bucket: str) -> BlobStore:
        """The store of a bucket that is in use. Sends nothing; each call of the store then raises ``Unavailable`` while
        the bucket lacks this installation's marker."""
        ...

    async def prepare(self, bucket: str, policy: MarkerPolicy) -> None:
        """Check a bucket and its marker, and create them if ``policy`` says so. ``Conflict`` says what prevents its use,
        ``Unavailable`` that the server does not answer."""
        ...

    async def adopt(self, bucket: str, *, by_name: bool) -> None:
        """Write this holder's marker into a bucket. ``Conflict`` if it belongs to a database that did not hold the own
        bucket, unless it is taken ``by_name``."""
        ...

    async def close(self) -> None: ...
