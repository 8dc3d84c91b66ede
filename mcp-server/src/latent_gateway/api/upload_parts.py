"""Receives the bytes of a resumable upload: parts as blobs, each with its row, and the whole file at the end.

What a row says is stored durably, in stores that all gateways share: after a kill, any of them continues there. The
last part is recorded together with the complete file, so an upload that has all its bytes is an upload.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Final

from latent_core.blobs.port import BlobStore
from latent_core.blobs.writer import store_file
from latent_core.db import audit, resumable_uploads as rows, uploads
from latent_core.db.resumable_uploads import ResumableUpload, UploadPart
from latent_core.db.uploads import Upload
from latent_core.domain.errors import DamagedBlob, Invalid, LatentError, TooLarge, Unavailable
from latent_core.domain.ids import Sha256
from latent_core.runtime.tasks import ended
from latent_gateway.api.tus import OffsetConflict
from latent_gateway.api.uploads import body_pieces, disk_trouble
from latent_gateway.auth import access
from latent_gateway.auth.access import Writable
from latent_gateway.auth.principal import Principal
from latent_gateway.auth.quotas import Meter, check_capacity
from latent_gateway.context import Gateway

PART_BYTES: Final = 8 * 1024 * 1024
"""A part is stored as soon as it has so many bytes: a lost connection costs at most as many."""


class PartFile:
    """Bytes in a temporary file, with their hash and number."""

    def __init__(self, folder: Path) -> None:
        self._file: IO[bytes] = NamedTemporaryFile(dir=folder, prefix="part-", delete=False)  # noqa: SIM115 - closed below
        self.path = Path(self._file.name)
        self._digest = hashlib.sha256()
        self.bytes = 0

    @property
    def sha256(self) -> Sha256:
        return Sha256(self._digest.hexdigest())

    async def write(self, piece: bytes) -> None:
        self._digest.update(piece)
        self.bytes += len(piece)
        try:
            await asyncio.to_thread(self._file.write, piece)
        except OSError as exc:
            raise disk_trouble(exc) from exc

    async def flush(self) -> None:
        try:
            await asyncio.to_thread(self._file.flush)
        except OSError as exc:
            raise disk_trouble(exc) from exc

    async def remove(self) -> None:
        with suppress(
            OSError
        ):  # on a full disk, closing writes the rest of the buffer again, and fails again
            await asyncio.to_thread(self._file.close)
        await asyncio.to_thread(self.path.unlink, missing_ok=True)


class PartReceiver:
    """Appends the body of one request to an upload."""

    def __init__(
        self,
        shared: Gateway,
        caller: Principal,
        container: Writable,
        upload: ResumableUpload,
        request_id: str,
    ) -> None:
        self._shared = shared
        self._caller = caller
        self._container = container
        self._upload = upload
        self._request_id = request_id
        self._part: PartFile | None = None
        self.received = upload.received
        """Stored durably so far."""
        self.complete: Upload | None = None

    async def receive(self, stream: AsyncIterator[bytes], meter: Meter) -> None:
        """Store the bytes of ``stream``. What arrived before an interruption is stored, too."""
        pieces = body_pieces(stream)
        try:
            while (piece := await self._next(pieces)) is not None:
                meter.took(len(piece))
                await self._take(piece)
            await self.store()
        finally:
            if self._part is not None:
                await self._part.remove()

    async def _next(self, pieces: AsyncIterator[bytes]) -> bytes | None:
        """The next bytes. An interruption, also by the end of this gateway, stores those before."""
        closing = self._shared.stack.closing
        arriving = asyncio.create_task(_piece(pieces))
        stopping = asyncio.create_task(closing.wait())
        try:
            await asyncio.wait({arriving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if closing.is_set():
                raise Unavailable("this gateway stops: continue the upload in a moment")
            return arriving.result()
        except LatentError:
            await self.store()
            raise
        finally:
            await ended(arriving, stopping)

    async def _take(self, piece: bytes) -> None:
        if self._part is None:
            self._part = PartFile(self._shared.stack.tmp)
        if self.received + self._part.bytes + len(piece) > self._upload.length:
            raise TooLarge(
                f"these are more bytes than the upload's Upload-Length of {self._upload.length}"
            )
        await self._part.write(piece)
        if self._part.bytes >= PART_BYTES:
            await self.store()

    async def store(self) -> None:
        """Store what was received since the last part, and the whole file if nothing is missing."""
        if self.complete is not None:
            return
        part, self._part = self._part, None
        size = part.bytes if part is not None else 0
        try:
            if self.received + size == self._upload.length:
                await self._store_whole(part)
            elif part is not None and size:
                await self._store_part(part)
        finally:
            if part is not None:
                await part.remove()
        self.received += size

    async def _store_part(self, part: PartFile) -> None:
        await part.flush()
        await store_file(self._shared.stack.db, self._store, part.path, part.sha256)
        row = UploadPart(self.received, part.bytes, part.sha256)
        async with self._shared.stack.db.transaction() as conn:
            if not await rows.advance(conn, self._upload.id, row):
                raise await self._conflict()

    async def _store_whole(self, last: PartFile | None) -> None:
        """Join the stored parts and the last one, check the hash, and make it an upload."""
        if last is not None and self.received == 0:
            await self._finish(last)
            return
        await check_capacity(
            self._shared.stack.tmp, self._shared.settings.min_free_bytes, self._upload.length
        )
        whole = PartFile(self._shared.stack.tmp)
        try:
            await self._join(whole, last)
            await self._finish(whole)
        finally:
            await whole.remove()

    async def _join(self, whole: PartFile, last: PartFile | None) -> None:
        async with self._shared.stack.db.reading() as conn:
            stored = await rows.parts(conn, self._upload.id)
        for part in stored:
            digest = hashlib.sha256()
            async for piece in self._store.stream(Sha256(part.sha256)):
                digest.update(piece)
                await whole.write(piece)
            if digest.hexdigest() != part.sha256:
                raise DamagedBlob(
                    f"the stored bytes of this upload from {part.start} on are damaged: send the file again"
                )
        if whole.bytes != self.received:  # another request has completed it
            raise await self._conflict()
        if last is not None:
            await last.flush()
            with await asyncio.to_thread(last.path.open, "rb") as file:
                while piece := await asyncio.to_thread(file.read, 256 * 1024):
                    await whole.write(piece)

    async def _finish(self, whole: PartFile) -> None:
        upload, sha256 = self._upload, whole.sha256
        if upload.declared_sha256 not in (None, sha256):
            async with self._shared.stack.db.transaction() as conn:
                await rows.delete(conn, upload.id, upload.principal)
            raise Invalid(
                f"the bytes have the hash {sha256}, and the upload declared {upload.declared_sha256}: "
                "the file changed while it was sent. Send it again",
                sha256=sha256,
            )
        await whole.flush()
        await store_file(self._shared.stack.db, self._store, whole.path, sha256)
        async with self._shared.stack.db.transaction() as conn:
            await access.held(conn, self._container)
            if not await rows.complete(conn, upload.id, self.received):
                raise await self._conflict()
            self.complete = await uploads.insert(
                conn,
                upload_id=upload.id,
                container_id=upload.container_id,
                sha256=sha256,
                filename=upload.filename,
                mime=upload.mime,
                size=upload.length,
                principal=upload.principal,
                bucket=upload.bucket,
            )
            await audit.note(
                conn,
                principal=self._caller.name,
                action="upload.add",
                container_id=upload.container_id,
                object_=f"{upload.id} {upload.filename}",
                request_id=self._request_id,
            )

    async def _conflict(self) -> OffsetConflict:
        """What a writer gets that lost against another one."""
        async with self._shared.stack.db.reading() as conn:
            now = await rows.get(
                conn, self._upload.container_id, self._upload.id, self._upload.principal
            )
        return OffsetConflict(self._upload.length if now is None else now.received)

    @property
    def _store(self) -> BlobStore:
        return self._shared.stack.blobs.of(self._upload.bucket)


async def _piece(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)
