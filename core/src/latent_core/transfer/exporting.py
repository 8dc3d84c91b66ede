"""Export: a container's live documents, written into one archive (DESIGN §7.5).

One short transaction per batch, because a snapshot held for minutes would slow down the queue. So the archive is not a
snapshot of one moment, but each document in it is consistent: its rows come from one snapshot. A document that is
replaced meanwhile is skipped and read later at its new place. Documents added after the start are not included.
"""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Final
from uuid import UUID

import numpy as np
import orjson

from latent_core.blobs.port import BlobStore
from latent_core.db import golden, sources
from latent_core.db.connection import Database
from latent_core.db.containers import Container
from latent_core.db.transfer import archives, export_rows as rows
from latent_core.domain import versions
from latent_core.domain.errors import Conflict, DamagedBlob, NotFound
from latent_core.domain.generated import FIRST_POSITION
from latent_core.domain.golden import GoldenSet
from latent_core.domain.ids import Sha256, point_id
from latent_core.domain.versions import recipe
from latent_core.ingest.stage import Checkpoint
from latent_core.transfer.batches import (
    ExportBatch,
    ExportPart,
    batched,
    generations_of,
    only,
    page_line,
)
from latent_core.transfer.records import (
    FORMAT,
    FORMAT_VERSION,
    GOLDEN,
    HEADER,
    MANIFEST,
    ChunkRecord,
    DocumentRecord,
    Header,
    RefRecord,
    SpaceRecord,
    Totals,
)
from latent_core.transfer.writer import ArchiveWriter, holds
from latent_core.vectors.port import VectorIndex
from latent_core.wire.sources import SourceView

DOCUMENTS_PER_LOOK: Final = 200
CHUNKS_PER_PART: Final = 1000
"""Limit per transaction, and of chunks in memory: a few megabytes."""

_DOCUMENT: Final = frozenset(DocumentRecord.model_fields)
_CHUNK: Final = frozenset(ChunkRecord.model_fields)
_REF: Final = frozenset(RefRecord.model_fields)

OnProgress = Callable[[int, int], Awaitable[None]]
"""Called with the chunks written and the approximate total."""


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What an archive contains besides the documents' rows."""

    vectors: bool = True
    blobs: bool = True


@dataclass(frozen=True, slots=True)
class FinishedArchive:
    """A finished archive."""

    bucket: str
    """Of the container's blobs, and of the file."""
    sha256: Sha256
    size: int
    totals: Totals
    contents_key: str
    lacking_blobs: int
    """Originals and page images that are lost or damaged here and therefore missing in the archive."""

    def totals_with_gaps(self) -> dict[str, int]:
        """Its totals and the number of missing blobs."""
        lacking = {"lacking_blobs": self.lacking_blobs} if self.lacking_blobs else {}
        return self.totals.model_dump() | lacking


class _DocumentReplaced(Conflict):
    """A document too large for one transaction was replaced between two of them."""

    transient = True


class ArchiveExport:
    """Writes one archive."""

    def __init__(
        self,
        db: Database,
        index: VectorIndex,
        blobs: BlobStore,
        container: Container,
        options: ExportOptions,
        *,
        checkpoint: Checkpoint,
        on_progress: OnProgress,
    ) -> None:
        self._db = db
        self._index = index
        self._blobs = blobs
        self._container = container
        self._options = options
        self._checkpoint = checkpoint
        self._on_progress = on_progress
        self._collection_id = container.space.collection_id
        self._recipe = recipe(container.manifest)
        self._chunk_nos = array("q")
        """Of the chunks of sources written so far, ascending. Generated ones come later and repeat nothing."""
        self._numbers = array("q")
        """The number of each of them in the archive."""
        self._written = 0
        """Chunks of all kinds."""
        self._stored: dict[bytes, int] = {}
        """Hashes of the blobs in the archive, each with its batch."""
        self._lacking: set[bytes] = set()
        self._done: set[UUID] = set()
        self._batch = 0
        self._expected = 0

    async def write(self, file: IO[bytes]) -> FinishedArchive:
        """Write the whole archive into ``file``; a transient ``Conflict`` if the export must start again."""
        async with self._db.transaction() as conn:
            begun = await rows.now(conn)
            key = await archives.contents_key(conn, self._container.id)
            self._expected = await rows.live_chunks(conn, self._container.id)
            found = await sources.listed(conn, self._container.id)
            queries = await golden.read(conn, self._container.id)
        writer = ArchiveWriter(file)
        await asyncio.to_thread(self._open, writer, begun, queries, found)
        await self._corpora(writer, begun)
        await self._documents(writer, begun)
        totals = await asyncio.to_thread(writer.close)
        return FinishedArchive(
            self._blobs.bucket, writer.sha256, writer.size, totals, key, len(self._lacking)
        )

    def _open(
        self,
        writer: ArchiveWriter,
        begun: Any,
        queries: GoldenSet | None,
        found: list[SourceView],
    ) -> None:
        container, space = self._container, self._container.space
        header = Header(
            format=FORMAT,
            format_version=FORMAT_VERSION,
            container_id=container.id,
            created_at=begun,
            space=SpaceRecord(embedder=space.embedder, version=space.lineage, dims=space.dims),
            handler=versions.HANDLER,
            analyser=versions.ANALYSER,
            vectors=self._options.vectors,
            blobs=self._options.blobs,
            sources=found,
        )
        writer.add(HEADER, header.model_dump_json(exclude_defaults=True).encode())
        writer.add(MANIFEST, container.manifest.model_dump_json().encode())
        if queries is not None:
            writer.add(GOLDEN, orjson.dumps(queries.written()))

    async def _corpora(self, writer: ArchiveWriter, begun: Any) -> None:
        after: UUID | None = None
        while True:
            async with self._db.transaction() as conn:
                found = await rows.without_chunks(
                    conn, self._container.id, after=after, begun=begun, limit=DOCUMENTS_PER_LOOK
                )
            if not found:
                return
            await self._write_batch(writer, found)
            after = found[-1]["doc_id"]

    async def _documents(self, writer: ArchiveWriter, begun: Any) -> None:
        after = -1
        while True:
            async with self._db.transaction() as conn:
                found = await rows.documents(
                    conn, self._container.id, after=after, begun=begun, limit=DOCUMENTS_PER_LOOK
                )
            if not found:
                return
            for some in batched(
                [d for d in found if d["doc_id"] not in self._done], CHUNKS_PER_PART
            ):
                await self._write_batch(writer, some)
                await self._on_progress(self._written, max(self._expected, self._written))
            after = found[-1]["first_chunk_no"]

    async def _write_batch(self, writer: ArchiveWriter, found: Sequence[dict[str, Any]]) -> None:
        await self._checkpoint()
        batch = await self._read(found)
        if batch.documents:
            await self._write_documents(writer, batch)
            for number, part in enumerate(batch.parts):
                await self._write_part(writer, number, part)
            await self._rest(writer, batch)
            writer.count("batches")
            await asyncio.to_thread(writer.end_frame)
            self._done.update(batch.documents)
            self._batch += 1

    async def _read(self, found: Sequence[dict[str, Any]]) -> ExportBatch:
        """Rows of these documents from one snapshot, without documents whose live generation has changed."""
        ids = [d["doc_id"] for d in found]
        isolation: Any = "repeatable read"
        async with self._db.transaction(isolation=isolation, read_only=True) as conn:
            chunks = await rows.chunks(
                conn, generations_of(found), self._collection_id, after=-1, limit=CHUNKS_PER_PART
            )
            pages = await rows.pages(conn, ids)
            refs = await rows.refs(conn, ids)
            summaries = await rows.summaries(conn, ids)
            live = await rows.sizes(conn, ids)
        # What is generated for a document changes the number of its chunks, not its generation.
        kept = {
            d["doc_id"]: d | {"live_chunks": live[d["doc_id"]][1]}
            for d in found
            if d["doc_id"] in live and live[d["doc_id"]][0] == d["generation"]
        }
        parts = await self._parts([c for c in chunks if c["doc_id"] in kept])
        if self._options.vectors and any(part.lacks_vectors for part in parts):
            # A replaced generation loses its points; its document is then exported later.
            async with self._db.transaction() as conn:
                newer = await rows.generations(conn, ids)
            gone = {i for i, d in kept.items() if newer.get(i) != d["generation"]}
            kept = {i: d for i, d in kept.items() if i not in gone}
            parts = await self._parts([c for c in chunks if c["doc_id"] in kept])
        return ExportBatch(
            kept,
            parts,
            [p for p in pages if p["doc_id"] in kept],
            [r for r in refs if r["doc_id"] in kept],
            summaries,
        )

    async def _parts(self, chunks: Sequence[dict[str, Any]]) -> list[ExportPart]:
        """Chunks in their order, split where mapped vectors begin or end. Mapped vectors come from another model and are
        not exported, because an import could not distinguish them from the embedder's own."""
        runs = [list(run) for _, run in groupby(chunks, key=itemgetter("mapped"))]
        return [ExportPart(run, await self._vectors(run)) for run in runs]

    async def _vectors(self, chunks: Sequence[dict[str, Any]]) -> bytes | None:
        """The vectors of chunks, window by window; None if one is missing: the import then embeds the chunks."""
        if not self._options.vectors or chunks[0]["mapped"]:
            return None
        space = self._container.space
        ids = [
            point_id(c["id"], c["generation"], window)
            for c in chunks
            for window in range(c["windows"])
        ]
        if not ids:
            return b""
        stored = await self._index.vectors(space.collection(), ids)
        if len(stored) < len(set(ids)):
            return None
        return np.stack([stored[i] for i in ids]).astype("<f4", copy=False).tobytes()

    async def _write_documents(self, writer: ArchiveWriter, batch: ExportBatch) -> None:
        refs: dict[UUID, list[dict[str, Any]]] = {}
        for row in batch.refs:
            if self._options.blobs:
                await self._blob(writer, row["sha256"], row["bytes"])
            refs.setdefault(row["doc_id"], []).append(only(row, _REF))
        named = self._named
        documents = (
            self._document(d, refs.get(i, []), batch.summaries.get(i))
            for i, d in batch.documents.items()
        )
        pages = (page_line(p, batch.documents[p["doc_id"]], self._place(p)) for p in batch.pages)
        await asyncio.to_thread(writer.add_lines, named("documents.jsonl"), "documents", documents)
        if batch.pages:
            await asyncio.to_thread(writer.add_lines, named("pages.jsonl"), "pages", pages)

    async def _blob(self, writer: ArchiveWriter, sha256: str, size: int) -> None:
        key = bytes.fromhex(sha256)
        if key in self._stored or key in self._lacking:
            return
        await self._checkpoint()
        path = await self._whole(Sha256(sha256), size)
        if path is None:
            self._lacking.add(key)
            return
        self._stored[key] = self._batch
        await asyncio.to_thread(writer.add_file, self._named(f"blobs/{sha256}"), path, sha256, size)
        writer.count("blobs")

    async def _whole(self, sha256: Sha256, size: int) -> Path | None:
        """The file of the blob, or None if it is lost or damaged: one lost blob must not prevent the export. The bytes
        are hashed first, because a stream cannot take back what it has written."""
        try:
            path = await self._blobs.local_copy(sha256)
            whole = await asyncio.to_thread(holds, path, sha256, size)
        except (
            NotFound,
            DamagedBlob,
            FileNotFoundError,
        ):  # bytes from a server are hashed while they are copied
            return None
        return path if whole else None

    def _place(self, page: dict[str, Any]) -> str | None:
        """The name of the page's image in the archive."""
        sha256 = page["image_sha256"]
        batch = self._stored.get(bytes.fromhex(sha256)) if sha256 else None
        return None if batch is None else f"batches/{batch:06d}/blobs/{sha256}"

    def _document(
        self, row: dict[str, Any], refs: list[dict[str, Any]], summary: dict[str, Any] | None
    ) -> bytes:
        stored_recipe: str | None = row["recipe"]
        current = stored_recipe is not None and stored_recipe.startswith(self._recipe)
        ending = (
            stored_recipe.removeprefix(self._recipe)
            if stored_recipe is not None and current
            else None
        )
        own = {"recipe": ending, "refs": refs} | ({"summary": summary} if summary else {})
        return orjson.dumps(only(row, _DOCUMENT) | own)

    async def _write_part(self, writer: ArchiveWriter, number: int, part: ExportPart) -> None:
        first = self._written
        self._written += len(part.chunks)
        for n, c in enumerate(part.chunks, first):
            if c["ordinal"] < FIRST_POSITION:
                self._chunk_nos.append(c["chunk_no"])
                self._numbers.append(n)
        records = (self._chunk(c, first + n) for n, c in enumerate(part.chunks))
        name = self._named(f"chunks-{number:04d}.jsonl")
        await asyncio.to_thread(writer.add_lines, name, "chunks", records)
        if part.vectors is not None:
            name = self._named(f"vectors-{number:04d}.f32")
            await asyncio.to_thread(writer.add, name, part.vectors)
            writer.count("vectors", sum(c["windows"] for c in part.chunks))

    def _chunk(self, row: dict[str, Any], n: int) -> bytes:
        signature: bytes | None = row["signature"]
        original = None if row["original"] is None else self._number(row["original"])
        if row["original"] is not None and original is None:
            signature = None  # its original is not in the archive: the import checks it again
        judged = {"signature": signature.hex() if signature else None, "original": original}
        return orjson.dumps(only(row, _CHUNK) | judged | {"n": n})

    def _number(self, chunk_no: int) -> int | None:
        place = bisect_left(self._chunk_nos, chunk_no)
        known = place < len(self._chunk_nos) and self._chunk_nos[place] == chunk_no
        return self._numbers[place] if known else None

    async def _rest(self, writer: ArchiveWriter, batch: ExportBatch) -> None:
        """Write the further parts of a document with more chunks than a part holds."""
        total = sum(d["live_chunks"] for d in batch.documents.values())
        written, number = sum(len(part.chunks) for part in batch.parts), len(batch.parts)
        parts = batch.parts
        while written < total and parts:
            await self._checkpoint()
            async with self._db.transaction() as conn:
                found = await rows.chunks(
                    conn,
                    generations_of(batch.documents.values()),
                    self._collection_id,
                    after=parts[-1].chunks[-1]["chunk_no"],
                    limit=CHUNKS_PER_PART,
                )
            parts = await self._parts(found)
            for part in parts:
                await self._write_part(writer, number, part)
                number += 1
            written += len(found)
        if written != total:
            raise _DocumentReplaced(
                "A large document was replaced during its export. The export starts again."
            )

    def _named(self, name: str) -> str:
        return f"batches/{self._batch:06d}/{name}"
