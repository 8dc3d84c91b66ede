"""Read an archive as a stream. Its content is untrusted: names, kinds and lengths are checked before data is kept.

No member is written under its own name, so no path traversal is possible. A foreign tar may contain links, devices and
headers of any length; here every member must be a plain file with an expected name.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any, Final

import orjson
from pydantic import ValidationError

from latent_core.domain.errors import Invalid
from latent_core.domain.manifest.model import Manifest, parse_manifest
from latent_core.transfer.records import (
    BATCH,
    FORMAT,
    GOLDEN,
    HEADER,
    INDEX,
    MANIFEST,
    MARKER,
    READABLE_VERSIONS,
    SEAL,
    Header,
)
from latent_core.transfer.writer import seal
from latent_core.transfer.zstd import DecompressionParameter, ZstdDecompressor, ZstdError

BLOCK: Final = 512
PIECE: Final = 256 * 1024
PACKED_PIECE: Final = 4096
"""Packed bytes per decompression step: they unpack to at most 128 MB."""
WINDOW: Final[dict[int, int]] = {DecompressionParameter.window_log_max: 27}
"""Window limit of the decompressor: zstd's own limit for untrusted streams."""
MEGABYTE: Final = 1024 * 1024
MAX_SMALL: Final = 16 * MEGABYTE
"""Limit of the header, the manifest and the golden queries."""
MAX_PART: Final = 256 * MEGABYTE
"""Limit of the lines or vectors of one part, which are held in memory. Our exports write a few megabytes."""
MAX_INDEX: Final = 512 * MEGABYTE
MAX_RATIO: Final = 250
"""A higher compression ratio is a decompression bomb."""
FREE_OF_RATIO: Final = 1024 * MEGABYTE


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """One member; its bytes must be read before the next member."""

    name: str
    size: int
    offset: int
    """Offset of its first byte in the unpacked file."""


class ArchiveReader:
    """Iterates over members. ``Invalid`` names the byte of the unpacked file with the error."""

    def __init__(self, file: IO[bytes]) -> None:
        self._unpacked = _FrameReader(file)
        self._offset = 0
        self._left = 0
        self._name = "its beginning"

    def __iter__(self) -> Iterator[ArchiveMember]:
        while (member := self._next()) is not None:
            yield member
        if self._read(1):
            raise self.wrong("data follows the end of the archive")
        if self._unpacked.cut:
            raise self.wrong("the end of the file is missing: it is truncated")
        if not self._unpacked.sealed:
            raise self.wrong("the file was changed after it was written")

    def pieces(self) -> Iterator[bytes]:
        """The rest of the current member."""
        while self._left:
            piece = self._exactly(min(PIECE, self._left))
            self._left -= len(piece)
            yield piece

    def whole(self, max_bytes: int) -> bytes:
        """The current member, at most ``max_bytes`` bytes long."""
        if self._left > max_bytes:
            raise self.wrong(f"the member has {self._left} bytes; the limit is {max_bytes}")
        return b"".join(self.pieces())

    def wrong(self, what: str) -> Invalid:
        """The error for the current position."""
        return Invalid(
            f"The archive cannot be imported: {what} (byte {self._offset} of its contents, "
            f"in '{self._name}'). Export it again, or use another copy.",
            offset=self._offset,
            member=self._name,
        )

    def _next(self) -> ArchiveMember | None:
        for _ in self.pieces():
            pass  # skips the unread rest
        self._exactly(-self._offset % BLOCK)
        head = self._exactly(BLOCK)
        if head == bytes(BLOCK):
            if self._exactly(BLOCK) != bytes(BLOCK):
                raise self.wrong("its end marker is incomplete")
            return None
        try:
            info = tarfile.TarInfo.frombuf(head, "utf-8", "strict")
        except (tarfile.HeaderError, UnicodeDecodeError) as exc:
            raise self.wrong(f"the header of a member is expected ({exc})") from exc
        if info.type != tarfile.REGTYPE or not _is_ours(info.name) or info.size < 0:
            raise self.wrong(f"an archive cannot contain '{info.name[:80]}'")
        self._name, self._left = info.name, info.size
        return ArchiveMember(info.name, info.size, self._offset)

    def _exactly(self, size: int) -> bytes:
        data = self._read(size)
        if len(data) < size:
            raise self.wrong(
                f"the file is truncated: at least {size - len(data)} bytes are missing"
            )
        return data

    def _read(self, size: int) -> bytes:
        try:
            data = self._unpacked.read(size)
        except ZstdError as exc:
            raise self.wrong(
                f"it is damaged near byte {self._unpacked.place} of the file ({exc})"
            ) from exc
        self._offset += len(data)
        if self._offset > FREE_OF_RATIO + MAX_RATIO * self._unpacked.place:
            raise self.wrong(f"it unpacks to more than {MAX_RATIO} times its size")
        return data


class _FrameReader:
    """Reads the contents of a file of zstd frames in pieces. Unlike the library's own reader, it detects whether the last
    frame is complete and whether any byte has changed."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        file.seek(0, os.SEEK_END)
        self._left = max(0, file.tell() - SEAL.size)
        file.seek(0)
        self._digest = hashlib.sha256()
        self._frame: ZstdDecompressor | None = None
        self._packed = memoryview(b"")
        self._taken = 0
        """Bytes of ``_packed`` already used: reading and hashing use larger pieces than unpacking."""
        self._ready: deque[bytes] = deque()
        self._size = 0
        self.cut = False
        """The file ended within a frame."""

    @property
    def sealed(self) -> bool:
        """Whether the seal matches the bytes that were read; call it at the end."""
        return self._file.read(SEAL.size + 1) == seal(self._digest.digest())

    def read(self, size: int) -> bytes:
        """``size`` bytes; fewer only at the end of the file."""
        while self._size < size and self._unpack():
            pass
        taken: list[bytes] = []
        while size and self._ready:
            piece = self._ready.popleft()
            if len(piece) > size:
                self._ready.appendleft(piece[size:])
                piece = piece[:size]
            taken.append(piece)
            size -= len(piece)
            self._size -= len(piece)
        return b"".join(taken)

    @property
    def place(self) -> int:
        """The number of unpacked bytes of the file."""
        return self._file.tell() - len(self._packed) + self._taken

    def _piece(self) -> memoryview:
        if self._taken == len(self._packed):
            read = self._file.read(min(PIECE, self._left))
            self._left -= len(read)
            self._digest.update(read)
            self._packed, self._taken = memoryview(read), 0
        piece = self._packed[self._taken : self._taken + PACKED_PIECE]
        self._taken += len(piece)
        return piece

    def _unpack(self) -> bool:
        """Unpack one more piece; False at the end."""
        packed = self._piece()
        if not packed:
            self.cut = self._frame is not None
            return False
        frame = self._frame or ZstdDecompressor(options=WINDOW)
        data = frame.decompress(packed)
        self._frame = frame
        if frame.eof:
            self._frame = None
            self._taken -= len(frame.unused_data)
        if data:
            self._ready.append(data)
            self._size += len(data)
        return True


def _is_ours(name: str) -> bool:
    return name in (HEADER, MANIFEST, GOLDEN, INDEX, MARKER) or bool(BATCH.fullmatch(name))


@dataclass(frozen=True, slots=True)
class ArchiveOpening:
    """Header and manifest of an archive that is not verified yet."""

    header: Header
    manifest: Manifest


def read_opening(file: IO[bytes]) -> ArchiveOpening:
    """Read only header and manifest: fast, but nothing is verified."""
    reader = ArchiveReader(file)
    members = iter(reader)
    expect(reader, members, HEADER)
    header = header_in(reader, reader.whole(MAX_SMALL))
    expect(reader, members, MANIFEST)
    return ArchiveOpening(header, manifest_in(reader, reader.whole(MAX_SMALL)))


def expect(reader: ArchiveReader, members: Iterator[ArchiveMember], name: str) -> ArchiveMember:
    """The next member, which must have this name."""
    member = next(members, None)
    if member is None or member.name != name:
        raise reader.wrong(f"'{name}' is expected here")
    return member


def header_in(reader: ArchiveReader, data: bytes) -> Header:
    fields = json_in(reader, data)
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise reader.wrong("it is not an exported container")
    version = fields.get("format_version")
    if version not in READABLE_VERSIONS:
        readable = " and ".join(map(str, READABLE_VERSIONS))
        raise reader.wrong(
            f"its format version is {version!r}; this release reads the versions {readable}"
        )
    try:
        return Header.model_validate(fields)
    except ValidationError as exc:
        raise reader.wrong(f"its header is invalid ({exc.errors()[0]['msg']})") from exc


def manifest_in(reader: ArchiveReader, data: bytes) -> Manifest:
    try:
        return parse_manifest(json_in(reader, data), where="the archive's manifest")
    except Invalid as exc:
        raise reader.wrong(exc.message) from exc


def json_in(reader: ArchiveReader, data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as exc:
        raise reader.wrong(f"invalid JSON ({exc})") from exc
