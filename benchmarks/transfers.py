"""Export and import of a large container: chunks a second, memory, and the same answers before and after.

    python -m benchmarks.transfers --chunks 100000 --queries 1000

The container comes from an archive that is written here: synthetic passages, their term vectors by the real analyser,
and vectors that mean nothing, since neither an import nor an exact scan costs more or less for it.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks import corpus
from benchmarks.archives import directions, write_archive
from benchmarks.installation import (
    JOB_SECONDS,
    MEGABYTE,
    BenchmarkInstallation,
    running,
    work_folder,
)
from latent_client import AsyncClient
from latent_core.domain.job import JobState, JobView
from latent_core.domain.manifest.model import Manifest
from latent_core.wire.search import SearchRequest

CONTAINER: Final = "large"
SMALL: Final = "small"
SMALL_SHARE: Final = 5
"""An export of so many times the chunks must not take more memory."""
PROBE: Final = "probe"
PATIENT: Final = {"LLC_SEARCH_TIMEOUT_MS": "60000"}
"""A partial answer could not be compared."""
SAMPLE_SECONDS: Final = 0.1


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
    throughput = f"{chunks / seconds:.0f} chunks/s in {seconds:.1f} s, verification included"
    print(
        f"import as {name}: {throughput}; sent in {sent:.1f} s; embedded {(job.result or {})['embedded']}"
    )


async def exported(installation: BenchmarkInstallation, name: str, file: Path) -> None:
    """Export by a process that has just begun: what an import once took would hide what an export takes."""
    await installation.restart()
    main = installation.tree()[0]
    async with installation.client() as client:
        await answers(
            client, PROBE, ["a query"]
        )  # what every process loads at its first search and export
        await ended(client, (await client.backup(PROBE)).job_id)  # made anew, as an export is not
        before = _own(main)
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
        f"export of {name}: {link.archive.totals['chunks']} chunks in {seconds:.1f} s, {size:.0f} MB; memory of gateway "
        f"and worker alone {before:.0f} MB before, {peak:.0f} MB at most (+{peak - before:.0f})"
    )


def _own(process: psutil.Process) -> float:
    """What would be free again if the process ended: no file that others have open as well."""
    return float(process.memory_full_info().uss) / MEGABYTE


async def _peak(process: psutil.Process) -> float:
    peak_mb = 0.0
    try:
        while True:
            peak_mb = max(peak_mb, await asyncio.to_thread(_own, process))
            await asyncio.sleep(SAMPLE_SECONDS)
    except asyncio.CancelledError:
        return peak_mb


async def answers(client: AsyncClient, name: str, queries: list[str]) -> list[Any]:
    found = []
    for query in queries:
        answer = await client.search(SearchRequest(containers=[name], query=query, top_k=10))
        if answer.partial:
            raise RuntimeError(f"a search was partial: {answer.issues}")
        found.append([(h.chunk_id, h.doc_id, h.score) for h in answer.hits])
    return found


async def measure(folder: Path, chunks: int, count: int) -> None:
    small, first, second = (folder / f"{name}.zst" for name in ("small", "made", "exported"))
    async with running(folder, PATIENT) as installation:
        async with installation.client() as client:
            await client.create(Manifest(id=PROBE, name="Probe"))
            space = (await client.describe(PROBE)).embedder
            part = max(1, chunks // SMALL_SHARE)
            texts = list(corpus.PassageWriter(21).passages(chunks))
            for file, name, some in ((small, SMALL, texts[:part]), (first, CONTAINER, texts)):
                manifest = Manifest(id=name, name=name)
                await asyncio.to_thread(write_archive, file, manifest, space, some, directions())
            print(f"{chunks} chunks, {first.stat().st_size / MEGABYTE:.0f} MB")
            await imported(client, small, SMALL, part)
            await imported(client, first, CONTAINER, chunks)
            queries = corpus.queries(texts, count)
            before = await answers(client, CONTAINER, queries)
        await exported(installation, SMALL, second)
        await exported(installation, CONTAINER, second)
        async with installation.client() as client:
            await ended(client, (await client.delete(CONTAINER)).job_id)
            await imported(client, second, CONTAINER, chunks)
            after = await answers(client, CONTAINER, queries)
        same = sum(one == other for one, other in zip(before, after, strict=True))
        hits = sum(bool(one) for one in before)
        print(f"{same} of {count} queries give the same ids and scores ({hits} of them have hits)")
        if same != count:
            raise SystemExit("the restored container answers otherwise")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=1000)
    arguments = parser.parse_args()
    with work_folder(None, "transfers") as folder:
        asyncio.run(measure(folder, arguments.chunks, arguments.queries))


if __name__ == "__main__":
    main()
