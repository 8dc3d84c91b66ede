"""Export and import of a large container: chunks a second, memory, and the same answers before and after.

    python -m benchmarks.transfers --chunks 100000 --queries 1000

The container comes from an archive that is written here: synthetic passages, their term vectors by the real analyser,
and vectors that mean nothing, since neither an import nor an exact scan costs more or less for it.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson
import psutil

from benchmarks import corpus
from benchmarks.installation import JOB_SECONDS, MEGABYTE, Installation, running, work_folder
from latent_client import AsyncClient
from latent_core.archive.records import FORMAT, FORMAT_VERSION, HEADER, LINEAGE, MANIFEST
from latent_core.archive.writer import ArchiveWriter
from latent_core.domain import versions
from latent_core.domain.ids import content_hash, document_id
from latent_core.domain.job import JobState, JobView
from latent_core.domain.manifest import Manifest
from latent_core.domain.query import SearchRequest
from latent_core.keywords.analyser import analyse, term_vector

CONTAINER: Final = "large"
CHUNKS_A_DOCUMENT: Final = 50
DOCUMENTS_A_BATCH: Final = 20
NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
PATIENT: Final = {"LLC_SEARCH_TIMEOUT_MS": "60000"}
"""A partial answer could not be compared."""
SAMPLE_SECONDS: Final = 0.1


def write_archive(file: Path, space: dict[str, Any], chunks: int) -> list[str]:
    """An archive of that many chunks; their texts."""
    random = np.random.default_rng(7)
    texts = corpus.Writer(21).passages(chunks)
    written: list[str] = []
    with file.open("wb") as out:
        writer = ArchiveWriter(out)
        header = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "container_id": CONTAINER,
            "created_at": NOW,
            "space": space,
            "handler": versions.HANDLER,
            "analyser": versions.ANALYSER,
            "vectors": True,
            "blobs": True,
        }
        writer.add(HEADER, orjson.dumps(header))
        writer.add(MANIFEST, Manifest(id=CONTAINER, name="Large").model_dump_json().encode())
        for batch in range(-(-chunks // (CHUNKS_A_DOCUMENT * DOCUMENTS_A_BATCH))):
            some = list(islice(texts, CHUNKS_A_DOCUMENT * DOCUMENTS_A_BATCH))
            _write_batch(writer, batch, some, len(written), random, int(space["dims"]))
            written += some
        writer.close()
    return written


def _write_batch(
    writer: ArchiveWriter,
    batch: int,
    texts: list[str],
    first: int,
    random: np.random.Generator,
    dims: int,
) -> None:
    folder = f"batches/{batch:06d}"
    groups = [texts[n : n + CHUNKS_A_DOCUMENT] for n in range(0, len(texts), CHUNKS_A_DOCUMENT)]
    names = [f"file:///{first + n * CHUNKS_A_DOCUMENT}.txt" for n in range(len(groups))]
    documents = (_document(name, group) for name, group in zip(names, groups, strict=True))
    writer.add_lines(f"{folder}/documents.jsonl", "documents", documents)
    writer.add_lines(f"{folder}/chunks-0000.jsonl", "chunks", _chunks(names, groups, first))
    vectors = random.standard_normal((len(texts), dims), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    writer.add(f"{folder}/vectors-0000.f32", vectors.astype("<f4").tobytes())
    writer.count("vectors", len(texts))
    writer.count("batches")
    writer.end_frame()


def _document(name: str, texts: list[str]) -> bytes:
    told = {
        "doc_id": document_id(CONTAINER, name),
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
    return orjson.dumps(told)


def _chunks(names: list[str], groups: list[list[str]], n: int) -> Iterator[bytes]:
    for name, group in zip(names, groups, strict=True):
        for ordinal, text in enumerate(group):
            analysed = analyse(text, "english")
            told = {
                "doc_id": document_id(CONTAINER, name),
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
            yield orjson.dumps(told)
            n += 1


async def ended(client: AsyncClient, job_id: int) -> JobView:
    (job,) = await client.wait([job_id], timeout_seconds=JOB_SECONDS)
    if job.state is not JobState.DONE:
        raise RuntimeError(f"job {job_id} is {job.state}: {job.cause}")
    return job


async def imported(client: AsyncClient, file: Path, name: str, chunks: int) -> None:
    begun = time.perf_counter()
    answer = await client.import_archive(file, container_id=name)
    sent = time.perf_counter() - begun
    job = await ended(client, answer.job_id)
    if job.started_at is None or job.finished_at is None:
        raise RuntimeError("a job without times")
    seconds = (job.finished_at - job.started_at).total_seconds()
    told = f"{chunks / seconds:.0f} chunks/s in {seconds:.1f} s, verification included"
    print(
        f"import as {name}: {told}; sent in {sent:.1f} s; embedded {(job.result or {})['embedded']}"
    )


async def exported(installation: Installation, client: AsyncClient, name: str, file: Path) -> None:
    main = installation.tree()[0]
    before = main.memory_info().rss / MEGABYTE
    watching = asyncio.create_task(_peak(main))
    answer = await client.export(name)
    job = await ended(client, answer.job_id or 0)
    watching.cancel()
    peak = await watching
    link = await client.exported(int((job.result or {})["archive_id"]))
    await client.download(link, file)
    if job.started_at is None or job.finished_at is None:
        raise RuntimeError("a job without times")
    seconds = (job.finished_at - job.started_at).total_seconds()
    size = link.archive.bytes / MEGABYTE
    print(
        f"export of {name}: {link.archive.totals['chunks']} chunks in {seconds:.1f} s, {size:.0f} MB; resident memory "
        f"of gateway and worker {before:.0f} MB before, {peak:.0f} MB at most (+{peak - before:.0f})"
    )


async def _peak(process: psutil.Process) -> float:
    most = 0.0
    try:
        while True:
            most = max(most, process.memory_info().rss / MEGABYTE)
            await asyncio.sleep(SAMPLE_SECONDS)
    except asyncio.CancelledError:
        return most


async def answers(client: AsyncClient, name: str, queries: list[str]) -> list[Any]:
    found = []
    for query in queries:
        answer = await client.search(SearchRequest(containers=[name], query=query, top_k=10))
        if answer.partial:
            raise RuntimeError(f"a search was partial: {answer.issues}")
        found.append([(h.chunk_id, h.doc_id, h.score) for h in answer.hits])
    return found


async def measure(folder: Path, chunks: int, count: int) -> None:
    first, second = folder / "made.zst", folder / "exported.zst"
    async with running(folder, PATIENT) as installation, installation.client() as client:
        probe = Manifest(id="probe", name="Probe")
        await client.create(probe)
        space = (await client.describe("probe")).embedder
        texts = await asyncio.to_thread(write_archive, first, space, chunks)
        print(f"{chunks} chunks, {first.stat().st_size / MEGABYTE:.0f} MB")
        await imported(client, first, CONTAINER, chunks)
        queries = corpus.queries(texts, count)
        before = await answers(client, CONTAINER, queries)
        await exported(installation, client, CONTAINER, second)
        await ended(client, (await client.delete(CONTAINER)).job_id)
        await imported(client, second, CONTAINER, chunks)
        after = await answers(client, CONTAINER, queries)
        same = sum(one == other for one, other in zip(before, after, strict=True))
        hits = sum(bool(one) for one in before)
        print(f"{same} of {count} queries give the same ids and scores ({hits} of them have hits)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=1000)
    arguments = parser.parse_args()
    with work_folder(None, "transfers") as folder:
        asyncio.run(measure(folder, arguments.chunks, arguments.queries))


if __name__ == "__main__":
    main()
