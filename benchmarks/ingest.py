"""Ingest: text through the whole system against the embedder alone, and a PDF from upload to its last page image.

The embedder alone is the same model on the same number of threads, given exactly the texts that the system
embedded, all at once. Both are timed one right after the other, and every round has texts of its own, since
nothing is embedded twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Final

import psutil
import pymupdf

from benchmarks import corpus
from benchmarks.installation import BenchmarkInstallation, add, create, ended, quiet
from latent_client import AsyncClient
from latent_core.domain.job import JobKind, JobView
from latent_core.models.embedding.local import LocalEmbedder
from latent_core.models.embedding.minilm import FP32, built_in

RECORDS: Final = 512
FILES: Final = 200
FILE_PASSAGES: Final = 3
PAGES: Final = 50
PAGE_WORDS: Final = 420
ROUNDS: Final = 3
WARM_TEXTS: Final = 8
MARGIN: Final = 54.0
FONT_SIZE: Final = 9.5
DEADLINE_SECONDS: Final = 1800.0
ASK_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Round:
    """One ingest, and the embedder alone on its texts. CPU seconds are of all processes of the side."""

    texts: int
    seconds: float
    alone_seconds: float
    cpu: float
    alone_cpu: float

    @property
    def ratio(self) -> float:
        return self.alone_seconds / self.seconds

    @property
    def cpu_ratio(self) -> float:
        return self.alone_cpu / self.cpu


@dataclass(frozen=True, slots=True)
class Throughput:
    """Texts a second through the system, as a share of those the embedder alone makes; medians of the rounds."""

    shape: str
    texts: int
    per_second: float
    alone_per_second: float
    ratio: float
    cpu_ratio: float
    """The same of CPU time: what a machine that others use as well cannot disturb, and waiting does not show in."""


@dataclass(frozen=True, slots=True)
class PdfTimes:
    pages: int
    chunks: int
    visible_seconds: float
    rendered_seconds: float


@dataclass(frozen=True, slots=True)
class TextShape:
    """A way to hand over texts."""

    name: str
    documents: int
    """That become visible."""
    write: Callable[[Path, int], list[Path]]
    """Files below a folder, from a seed."""


def write_corpus(folder: Path, seed: int) -> list[Path]:
    texts = corpus.PassageWriter(seed).full_passages(RECORDS)
    return [corpus.write_jsonl(folder / f"corpus-{seed}.jsonl", texts)]


def write_files(folder: Path, seed: int) -> list[Path]:
    writer = corpus.PassageWriter(seed)
    return [
        corpus.write_text(folder / f"text-{seed}-{number}.txt", writer.full_passages(FILE_PASSAGES))
        for number in range(FILES)
    ]


SHAPES: Final = (
    # The corpus itself is a document, too.
    TextShape(f"JSONL corpus of {RECORDS} records", RECORDS + 1, write_corpus),
    TextShape(f"{FILES} text files", FILES, write_files),
)


async def throughput(installation: BenchmarkInstallation, rounds: int = ROUNDS) -> list[Throughput]:
    """Every shape; the installation's model is loaded beforehand."""
    alone = LocalEmbedder(built_in(FP32, installation.data_dir / "models"))
    try:
        await alone.embed_documents(list(corpus.PassageWriter(1).full_passages(WARM_TEXTS)))
        async with installation.client() as client:
            await _warm(installation, client)
            found: dict[str, list[Round]] = {shape.name: [] for shape in SHAPES}
            for number in range(rounds):
                for place, shape in enumerate(SHAPES):
                    seed = 1000 + 10 * number + place
                    one = await _round(installation, client, alone, shape, seed)
                    found[shape.name].append(one)
    finally:
        await alone.close()
    return [_throughput(name, made) for name, made in found.items()]


async def _warm(installation: BenchmarkInstallation, client: AsyncClient) -> None:
    file = corpus.write_text(installation.folder / "warm.txt", [corpus.PassageWriter(2).text(200)])
    await create(client, "warm")
    await ended(client, [await add(client, "warm", file)])
    await quiet(client, "warm")


async def _round(
    installation: BenchmarkInstallation,
    client: AsyncClient,
    alone: LocalEmbedder,
    shape: TextShape,
    seed: int,
) -> Round:
    container = f"round-{seed}"
    files, documents = shape.write(installation.folder, seed), shape.documents
    await create(client, container)
    cpu = _tree_cpu(installation)
    begun = datetime.now(UTC)
    jobs = [await add(client, container, file) for file in files]
    await _until_visible(client, container, documents)
    seconds = _seconds(begun, await ended(client, jobs))
    cpu = _tree_cpu(installation) - cpu
    await quiet(client, container)
    texts = [chunk.embed_text async for chunk in client.chunks(container)]
    own_cpu, own_begun = time.process_time(), time.perf_counter()
    await alone.embed_documents(texts)
    return Round(
        texts=len(texts),
        seconds=seconds,
        alone_seconds=time.perf_counter() - own_begun,
        cpu=cpu,
        alone_cpu=time.process_time() - own_cpu,
    )


async def _until_visible(client: AsyncClient, container: str, documents: int) -> None:
    """Asks rarely: a client that asks for every job costs more than the ingest of a small file."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while (await client.describe(container)).sizes.documents < documents:  # noqa: ASYNC110 - no event crosses processes
            await asyncio.sleep(ASK_SECONDS)


def _seconds(begun: datetime, jobs: list[JobView]) -> float:
    """Until the last of ``jobs`` was done, by the server's clock, which is this machine's."""
    ends = [job.finished_at for job in jobs if job.finished_at is not None]
    return (max(ends) - begun).total_seconds()


def _tree_cpu(installation: BenchmarkInstallation) -> float:
    """CPU seconds of the installation's processes, of those that have ended as far as they were waited for."""
    total = 0.0
    for process in installation.tree():
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def _throughput(shape: str, rounds: list[Round]) -> Throughput:
    return Throughput(
        shape=shape,
        texts=rounds[0].texts,
        per_second=round(median(r.texts / r.seconds for r in rounds), 1),
        alone_per_second=round(median(r.texts / r.alone_seconds for r in rounds), 1),
        ratio=round(median(r.ratio for r in rounds), 3),
        cpu_ratio=round(median(r.cpu_ratio for r in rounds), 3),
    )


def write_pdf(path: Path, pages: int = PAGES) -> Path:
    """A report: text in paragraphs, a rule and a diagram on every page."""
    writer = corpus.PassageWriter(3)
    with pymupdf.open() as document:  # type: ignore[no-untyped-call]  # it ships no types
        for number in range(1, pages + 1):
            page = document.new_page()
            _draw(page, number)
            left, top, right, bottom = page.rect
            box = (left + MARGIN, top + 2.6 * MARGIN, right - MARGIN, bottom - MARGIN)
            text = "\n\n".join(writer.text(PAGE_WORDS // 3) for _ in range(3))
            if page.insert_textbox(box, text, fontsize=FONT_SIZE) < 0:
                raise RuntimeError("the text of a page does not fit")
        document.save(path, garbage=3, deflate=True)
    return path


def _draw(page: pymupdf.Page, number: int) -> None:
    page.insert_text((MARGIN, MARGIN), f"{number}. Section", fontsize=16)
    for bar in range(12):
        left, base = MARGIN + bar * 40, 2.4 * MARGIN
        height = 12 + (number * 7 + bar * 13) % 48
        page.draw_rect((left, base - height, left + 28, base), fill=(0.2, 0.4, bar / 12))


async def pdf(installation: BenchmarkInstallation) -> PdfTimes:
    """A PDF from the beginning of its upload until it can be found, and until its pages are drawn."""
    file = write_pdf(installation.folder / "report.pdf")
    async with installation.client() as client:
        await create(client, "report")
        begun = datetime.now(UTC)
        visible = _seconds(begun, await ended(client, [await add(client, "report", file)]))
        async with asyncio.timeout(DEADLINE_SECONDS):
            await quiet(client, "report")
        jobs = [job async for job in client.jobs(container_id="report")]
        drawn = [job.job_id for job in jobs if job.kind is JobKind.RENDER]
        rendered = _seconds(begun, await ended(client, drawn))
        sizes = (await client.describe("report")).sizes
    return PdfTimes(sizes.pages, sizes.chunks, round(visible, 2), round(rendered, 2))
