"""Batches of documents in an archive: read for an import (verify the archive first), written by an export."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any, Final, TypeVar
from uuid import UUID

import numpy as np
import orjson
from pydantic import BaseModel, ValidationError

from latent_core.domain.vector_types import Matrix
from latent_core.transfer.reader import MAX_PART, ArchiveMember, ArchiveReader
from latent_core.transfer.records import BATCH, ChunkRecord, DocumentRecord, PageRecord

R = TypeVar("R", bound=BaseModel)


@dataclass(slots=True)
class BlobFile:
    """Bytes of a batch that is still to come, in a file that its receiver removes."""

    path: Path
    sha256: str


@dataclass(slots=True)
class ArchivePart:
    """Chunks in the order of their numbers; ``vectors`` has a row for each window, or is None."""

    chunks: Sequence[ChunkRecord]
    vectors: Matrix | None = None


@dataclass(slots=True)
class ArchiveBatch:
    """Whole documents with all that belongs to them."""

    number: int
    documents: list[DocumentRecord] = field(default_factory=list)
    pages: list[PageRecord] = field(default_factory=list)
    parts: list[ArchivePart] = field(default_factory=list)

    @property
    def chunks(self) -> int:
        return sum(len(part.chunks) for part in self.parts)


def read_batches(
    file: IO[bytes], dims: int, folder: Path, *, first: int
) -> Iterator[BlobFile | ArchiveBatch]:
    """Batches from ``first`` on, each after the blobs its documents refer to. ``folder`` takes the blobs' files.

    A blob stands once in an archive: those of batches before ``first`` come as well, a later one may need them.
    """
    return _BatchReader(file, dims, folder).run(first)


class _BatchReader:
    def __init__(self, file: IO[bytes], dims: int, folder: Path) -> None:
        self._reader = ArchiveReader(file)
        self._dims = dims
        self._folder = folder

    def run(self, first: int) -> Iterator[BlobFile | ArchiveBatch]:
        batch: ArchiveBatch | None = None
        for member in self._reader:
            matched = BATCH.fullmatch(member.name)
            if matched is None:
                continue  # its bytes are passed over
            number = int(matched[1])
            if number < first:
                if matched[5] is not None:
                    yield self._blob(matched[5])
                continue
            if batch is None or batch.number != number:
                if batch is not None:
                    yield batch
                batch = ArchiveBatch(number)
            if matched[5] is not None:
                yield self._blob(matched[5])
            else:
                self._take(batch, member, matched[2] or matched[3])
        if batch is not None:
            yield batch

    def _take(self, batch: ArchiveBatch, member: ArchiveMember, kind: str) -> None:
        data = self._reader.whole(MAX_PART)
        match kind:
            case "documents":
                batch.documents += self._lines(DocumentRecord, member, data)
            case "pages":
                batch.pages += self._lines(PageRecord, member, data)
            case "chunks":
                batch.parts.append(ArchivePart(self._lines(ChunkRecord, member, data)))
            case _:
                self._vectors(batch, data)

    def _lines(self, kind: type[R], member: ArchiveMember, data: bytes) -> list[R]:
        found: list[R] = []
        for line in data.split(b"\n")[:-1]:
            try:
                found.append(kind.model_validate_json(line))
            except ValidationError as exc:
                error = exc.errors()[0]
                place = ".".join(str(part) for part in error["loc"])
                raise self._reader.wrong(
                    f"line {len(found) + 1} of '{member.name}': {place}: {error['msg']}"
                ) from exc
        return found

    def _vectors(self, batch: ArchiveBatch, data: bytes) -> None:
        matrix = np.frombuffer(data, "<f4").reshape(-1, self._dims)
        vector_count = sum(c.windows for c in batch.parts[-1].chunks) if batch.parts else -1
        if len(matrix) != vector_count or not np.isfinite(matrix).all():
            raise self._reader.wrong(
                f"{len(matrix)} vectors, but {vector_count} finite vectors are expected"
            )
        batch.parts[-1].vectors = matrix

    def _blob(self, sha256: str) -> BlobFile:
        with NamedTemporaryFile(dir=self._folder, prefix="import-", delete=False) as file:
            try:
                for piece in self._reader.pieces():
                    file.write(piece)
            except BaseException:
                os.unlink(file.name)
                raise
        return BlobFile(Path(file.name), sha256)


_PAGE: Final = frozenset(PageRecord.model_fields)


@dataclass(frozen=True, slots=True)
class ExportPart:
    """At least one chunk."""

    chunks: Sequence[dict[str, Any]]
    vectors: bytes | None

    @property
    def lacks_vectors(self) -> bool:
        return self.vectors is None and not self.chunks[0]["mapped"]


@dataclass(frozen=True, slots=True)
class ExportBatch:
    """Consistent rows of some documents."""

    documents: Mapping[UUID, dict[str, Any]]
    parts: Sequence[ExportPart]
    pages: Sequence[dict[str, Any]]
    refs: Sequence[dict[str, Any]]
    summaries: Mapping[UUID, dict[str, Any]]


def batched(found: Sequence[dict[str, Any]], chunks: int) -> Iterator[list[dict[str, Any]]]:
    """Group documents with at most ``chunks`` chunks in total; a larger document is alone."""
    batch: list[dict[str, Any]] = []
    remaining = chunks
    for one in found:
        if batch and one["live_chunks"] > remaining:
            yield batch
            batch, remaining = [], chunks
        batch.append(one)
        remaining -= one["live_chunks"]
    if batch:
        yield batch


def only(row: Mapping[str, Any], fields: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name in fields}


def generations_of(found: Iterable[Mapping[str, Any]]) -> dict[UUID, int]:
    return {d["doc_id"]: d["generation"] for d in found}


def page_line(row: dict[str, Any], document: Mapping[str, Any], uri: str | None) -> bytes:
    """One line of ``pages.jsonl``; ``uri`` is the name of the image in the archive."""
    fields = {
        "uri": uri,
        "sha256": row["image_sha256"],
        "source_pdf": document["uri"] if document["source_type"] == "pdf" else None,
        "source_file": document["uri"],
    }
    absent = {name for name in ("extraction", "words") if row[name] is None}
    row = {name: value for name, value in row.items() if name not in absent}
    return orjson.dumps(only(row, _PAGE) | fields)
