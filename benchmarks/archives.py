"""Archives of synthetic containers, written here: importing one is how a benchmark gets a large container soon.

The term vectors are the real analyser's; the vectors are what the caller makes of the texts, since no measurement of
speed depends on what they mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from latent_core.bm25.analyser import analyse, term_vector
from latent_core.domain import versions
from latent_core.domain.ids import content_hash, document_id
from latent_core.domain.manifest.model import Manifest
from latent_core.models.embedding.minilm import DIMS
from latent_core.transfer.records import FORMAT, FORMAT_VERSION, HEADER, LINEAGE, MANIFEST
from latent_core.transfer.writer import ArchiveWriter

CHUNKS_PER_DOCUMENT: Final = 10
CHUNKS_PER_BATCH: Final = 1000
NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)

MakeVectors = Callable[[Sequence[str]], NDArray[np.float32]]
"""One row a text, of length 1."""


def directions(seed: int = 7) -> MakeVectors:
    """Random ones, of the local embedder's dimensions."""
    random = np.random.default_rng(seed)

    def made(texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = random.standard_normal((len(texts), DIMS), dtype=np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors

    return made


def write_archive(
    file: Path,
    manifest: Manifest,
    space: Mapping[str, Any],
    texts: Sequence[str],
    vectors: MakeVectors,
    *,
    analyser: int = versions.ANALYSER,
) -> None:
    """A chunk a text. ``space`` is what a description of a container says of its embedder. With another ``analyser``
    than ours, the import analyses the texts itself."""
    with file.open("wb") as out:
        writer = ArchiveWriter(out)
        header = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "container_id": manifest.id,
            "created_at": NOW,
            "space": dict(space),
            "handler": versions.HANDLER,
            "analyser": analyser,
            "vectors": True,
            "blobs": True,
        }
        writer.add(HEADER, orjson.dumps(header))
        writer.add(MANIFEST, manifest.model_dump_json().encode())
        for batch, first in enumerate(range(0, len(texts), CHUNKS_PER_BATCH)):
            some = texts[first : first + CHUNKS_PER_BATCH]
            _write_batch(writer, f"batches/{batch:06d}", manifest.id, some, first, vectors(some))
        writer.close()


def _write_batch(
    writer: ArchiveWriter,
    folder: str,
    container_id: str,
    texts: Sequence[str],
    first: int,
    vectors: NDArray[np.float32],
) -> None:
    groups = {
        f"file:///{first + start}.txt": texts[start : start + CHUNKS_PER_DOCUMENT]
        for start in range(0, len(texts), CHUNKS_PER_DOCUMENT)
    }
    documents = (_document(container_id, name, group) for name, group in groups.items())
    writer.add_lines(f"{folder}/documents.jsonl", "documents", documents)
    chunks = _chunks(container_id, groups, first)
    writer.add_lines(f"{folder}/chunks-0000.jsonl", "chunks", chunks)
    writer.add(f"{folder}/vectors-0000.f32", vectors.astype("<f4").tobytes())
    writer.count("vectors", len(texts))
    writer.count("batches")
    writer.end_frame()


def _document(container_id: str, name: str, texts: Sequence[str]) -> bytes:
    record = {
        "doc_id": document_id(container_id, name),
        "uri": name,
        "mime": "text/plain",
        "source_type": "text",
        "title": name,
        "sha256": content_hash("".join(texts)),
        "bytes": sum(map(len, texts)),
        "meta": {},
        "live_chunks": len(texts),
        "language": "english",
        "fingerprint": None,
        "source_modified_at": NOW,
        "source_mtime_ns": None,
        "first_fetched_at": NOW,
        "fetched_at": NOW,
        "created_at": NOW,
    }
    return orjson.dumps(record)


def _chunks(container_id: str, groups: Mapping[str, Sequence[str]], n: int) -> Iterator[bytes]:
    for name, group in groups.items():
        for ordinal, text in enumerate(group):
            analysed = analyse(text, "english")
            record = {
                "doc_id": document_id(container_id, name),
                "n": n,
                "ordinal": ordinal,
                "modality": "text",
                "source_type": "text",
                "block_type": "paragraph",
                "text": text,
                "embed_text": text,
                "line_start": ordinal + 1,
                "line_end": ordinal + 1,
                "offset_start": 0,
                "offset_end": len(text),
                "content_hash": content_hash(text),
                "token_count": 200,
                "windows": 1,
                "tsv": term_vector(analysed),
                "length": analysed.length,
                "provenance": dict.fromkeys(LINEAGE, "synthetic"),
                "created_at": NOW,
                "signature": content_hash(text),  # judged already: the judging is not measured here
            }
            yield orjson.dumps(record)
            n += 1
