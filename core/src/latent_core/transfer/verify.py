"""Verify a whole archive before any of it is used: hashes, counts, index and marker."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import IO, Any

from pydantic import ValidationError

from latent_core.domain.errors import Invalid
from latent_core.transfer.reader import (
    MAX_INDEX,
    MAX_PART,
    MAX_SMALL,
    ArchiveMember,
    ArchiveReader,
    expect,
    header_in,
    json_in,
    manifest_in,
)
from latent_core.transfer.records import (
    BATCH,
    GOLDEN,
    HEADER,
    INDEX,
    MANIFEST,
    MARKER,
    ArchiveIndex,
    Header,
    MemberRecord,
    Totals,
    VerifiedArchive,
)

VECTOR_NUMBER_BYTES = 4


class Verification:
    """Reads a whole archive and keeps only hashes."""

    def __init__(self, file: IO[bytes]) -> None:
        self._reader = ArchiveReader(file)
        self._seen: list[MemberRecord] = []
        self._counted: dict[str, int] = {}
        self._batch = -1

    def steps(self) -> Iterator[VerifiedArchive | None]:
        """Yields None after each member, so that the caller can check for cancellation, and finally the contents.

        ``Invalid`` names the error and its position.
        """
        reader = self._reader
        members = iter(reader)
        expect(reader, members, HEADER)
        header = header_in(reader, self._kept(HEADER))
        expect(reader, members, MANIFEST)
        manifest = manifest_in(reader, self._kept(MANIFEST))
        golden: dict[str, Any] | None = None
        for member in members:
            if member.name == INDEX:
                totals = self._end(members)
                yield VerifiedArchive(
                    header=header, manifest=manifest, golden=golden, totals=totals
                )
                return
            if member.name == GOLDEN:
                golden = json_in(reader, self._kept(GOLDEN))
                if not isinstance(golden, dict):
                    raise reader.wrong("the golden queries are invalid")
            else:
                self._hash(member, header)
            yield None
        raise reader.wrong("the index is missing")

    def _kept(self, name: str) -> bytes:
        data = self._reader.whole(MAX_SMALL)
        self._note(name, len(data), hashlib.sha256(data).hexdigest(), 0)
        return data

    def _hash(self, member: ArchiveMember, header: Header) -> None:
        matched = BATCH.fullmatch(member.name)
        if matched is None:
            raise self._reader.wrong(f"'{member.name}' is not allowed here")
        batch, listed, part, _, blob = matched.groups()
        self._follow(int(batch))
        if blob is None and member.size > MAX_PART:
            raise self._reader.wrong(
                f"'{member.name}' has {member.size} bytes; the limit is {MAX_PART}"
            )
        digest, lines = hashlib.sha256(), 0
        for piece in self._reader.pieces():
            digest.update(piece)
            if listed or part == "chunks":
                lines += piece.count(b"\n")
        if blob is not None and digest.hexdigest() != blob:
            raise self._reader.wrong(f"the bytes of blob {blob} do not match its hash")
        self._note(member.name, member.size, digest.hexdigest(), lines)
        self._count(listed or part or "blobs", member, header, lines)

    def _follow(self, batch: int) -> None:
        """``Invalid`` unless batches follow each other without gaps."""
        if batch not in (self._batch, self._batch + 1):
            raise self._reader.wrong(f"batch {batch} follows batch {self._batch}, out of order")
        self._batch = batch

    def _count(self, kind: str, member: ArchiveMember, header: Header, lines: int) -> None:
        number = lines
        if kind == "blobs":
            number = 1
        elif kind == "vectors":
            number, rest = divmod(member.size, VECTOR_NUMBER_BYTES * header.space.dims)
            if rest:
                raise self._reader.wrong(f"'{member.name}' contains an incomplete vector")
        self._counted[kind] = self._counted.get(kind, 0) + number

    def _note(self, name: str, size: int, sha256: str, records: int) -> None:
        self._seen.append(MemberRecord(name=name, bytes=size, sha256=sha256, records=records))

    def _end(self, members: Iterator[ArchiveMember]) -> Totals:
        """Compare index and marker with the members that were read."""
        reader = self._reader
        data = reader.whole(MAX_INDEX)
        try:
            index = ArchiveIndex.model_validate_json(data)
        except ValidationError as exc:
            raise reader.wrong(f"the index is invalid ({exc.errors()[0]['msg']})") from exc
        self._compare(index)
        expect(reader, members, MARKER)
        if reader.whole(MAX_SMALL).strip() != hashlib.sha256(data).hexdigest().encode():
            raise reader.wrong("the marker does not match the index")
        if next(members, None) is not None:
            raise reader.wrong("a member follows the marker")
        return index.totals

    def _compare(self, index: ArchiveIndex) -> None:
        for expected_member, seen in zip(index.members, self._seen, strict=False):
            if expected_member != seen:
                raise Invalid(
                    f"The archive cannot be imported: '{seen.name}' does not match the index entry "
                    f"'{expected_member.name}' ({_difference(expected_member, seen)}). Export it again, or use another copy.",
                    member=seen.name,
                )
        if len(index.members) != len(self._seen):
            raise self._reader.wrong(
                f"the index lists {len(index.members)} members, but the archive has {len(self._seen)}"
            )
        counted = Totals(**self._counted, batches=self._batch + 1)
        if counted != index.totals:
            raise self._reader.wrong(
                f"the index counts {index.totals!r}, but the archive has {counted!r}"
            )


def _difference(expected_member: MemberRecord, seen: MemberRecord) -> str:
    for field in ("name", "bytes", "records", "sha256"):
        expected, found = getattr(expected_member, field), getattr(seen, field)
        if expected != found:
            return f"{field} is {found}, not {expected}"
    return "no difference"
