"""Write an archive as a stream: what was handed in is compressed, hashed and gone from memory."""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Final

import orjson

from latent_core.domain.errors import Conflict
from latent_core.domain.ids import Sha256
from latent_core.transfer.records import (
    INDEX,
    MARKER,
    SEAL,
    SEAL_BYTES,
    SEAL_MAGIC,
    ArchiveIndex,
    MemberRecord,
    Totals,
)
from latent_core.transfer.zstd import CompressionParameter, ZstdCompressor

PACKING: Final[dict[int, int]] = {
    CompressionParameter.compression_level: 3,
    CompressionParameter.checksum_flag: 1,
}
PIECE: Final = 256 * 1024
BLOCK: Final = 512
"""Of a tar."""


class ArchiveWriter:
    """Writes to ``file`` from its beginning. Called from one thread at a time.

    ``close`` writes index and marker; what was never closed is no archive.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._out = _HashingFile(file)
        self._zstd = ZstdCompressor(options=PACKING)
        self._members: list[MemberRecord] = []
        self._counted: dict[str, int] = {}

    @property
    def sha256(self) -> Sha256:
        """Of the file, once closed."""
        return Sha256(self._out.digest.hexdigest())

    @property
    def size(self) -> int:
        return self._out.size

    def add(self, name: str, data: bytes, *, records: int = 0) -> None:
        """One member, whole."""
        self._head(name, len(data))
        self._write(data)
        self._foot(name, len(data), hashlib.sha256(data).hexdigest(), records)

    def add_lines(self, name: str, kind: str, records: Iterable[bytes]) -> None:
        """Records of a ``kind`` that the totals count, each JSON without a line's end."""
        written = [record + b"\n" for record in records]
        self.add(name, b"".join(written), records=len(written))
        self.count(kind, len(written))

    def add_file(self, name: str, path: Path, sha256: str, size: int) -> None:
        """The bytes of a file that has this hash and length; ``Conflict`` when it has them no more (``holds``)."""
        self._head(name, size)
        digest, left = hashlib.sha256(), size
        with path.open("rb") as source:
            while piece := source.read(min(PIECE, left)):
                digest.update(piece)
                self._write(piece)
                left -= len(piece)
        if left or digest.hexdigest() != sha256:
            raise Conflict(
                f"Blob {sha256} is damaged in the store. Run `latent doctor --deep`, then export again.",
                sha256=sha256,
            )
        self._foot(name, size, sha256, 0)

    def count(self, kind: str, number: int = 1) -> None:
        self._counted[kind] = self._counted.get(kind, 0) + number

    def end_frame(self) -> None:
        """Begin a new frame: each carries a checksum of its own, so damage is found near its place."""
        self._out.write(self._zstd.flush(ZstdCompressor.FLUSH_FRAME))

    def close(self) -> Totals:
        """Write the index, then the marker."""
        totals = Totals(**self._counted)
        index = orjson.dumps(
            ArchiveIndex(members=self._members, totals=totals).model_dump(mode="json")
        )
        self.end_frame()
        self.add(INDEX, index)
        self.add(MARKER, hashlib.sha256(index).hexdigest().encode() + b"\n")
        self._write(bytes(2 * BLOCK))
        self.end_frame()
        self._out.write(seal(self._out.digest.digest()))
        return totals

    def _write(self, data: bytes) -> None:
        self._out.write(self._zstd.compress(data))

    def _head(self, name: str, size: int) -> None:
        head = tarfile.TarInfo(name)
        head.size, head.mode = size, 0o644
        self._write(head.tobuf(tarfile.GNU_FORMAT))  # sizes over 8 GB are written in binary

    def _foot(self, name: str, size: int, sha256: str, records: int) -> None:
        self._write(bytes(-size % BLOCK))
        self._members.append(MemberRecord(name=name, bytes=size, sha256=sha256, records=records))


def holds(path: Path, sha256: str, size: int) -> bool:
    """Whether a file has this hash and length."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size != size:
            return False
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256


def seal(sha256: bytes) -> bytes:
    """The end of a file whose bytes so far have this hash."""
    return SEAL.pack(SEAL_MAGIC, SEAL_BYTES, sha256)


class _HashingFile:
    """A file that knows the hash and length of what was written to it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        self.size += len(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()
