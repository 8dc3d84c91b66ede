"""Bytes by content hash: originals, page images, thumbnails, exports."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

from latent_core.domain.ids import Sha256


class BlobStore(Protocol):
    """Content-addressed store. A blob is complete or absent: an interrupted write leaves nothing under its name.

    Calls raise ``Unavailable`` when the store is unreachable, ``StoreFull`` when it is full.
    """

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

    async def local_copy(self, sha256: Sha256) -> Path:
        """A local read-only file with these bytes for parsers; ``NotFound`` when absent."""
        ...

    async def delete(self, sha256: Sha256) -> None:
        """Remove the blob; silent when absent."""
        ...

    def hashes(self) -> AsyncIterator[Sha256]:
        """The hashes of all blobs, in any order (for checks)."""
        ...

    async def close(self) -> None: ...
