"""Search latency while the pages of a PDF are described by a language model, against the same searches at idle.

    python -m benchmarks.page_extraction                      300 pages, 5 s per answer
    python -m benchmarks.page_extraction --pages 60 --rounds 6 --delay 1

Idle and extraction take turns, ten pages at a time, so that a disturbance of the machine falls on both; the ratio is the
median of the ratios of neighbours. The model is a stand-in that answers truthfully after a delay, four requests at a time; the embedder is the local one, which
embeds what the pages are described with. Only the ratio means something on a shared machine.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks import corpus
from benchmarks.installation import BenchmarkInstallation, add, create, ended, quiet, work_folder
from benchmarks.search import MODES, WARM_UP, Asker, Spread, prepare, texts_of, until_warm
from latent_client import AsyncClient
from latent_core.domain.ids import document_id
from latent_core.domain.job import JobState
from latent_core.domain.manifest.model import parse_manifest
from latent_workers.parse.pdf import mupdf
from tests.support.page_answers import described
from tests.support.servers.llm_server import MODEL, LanguageModelServer

CHUNKS: Final = 1_000
BOOK: Final = "book"
WORDS: Final = 300
"""Of a page."""
AFTER_SECONDS: Final = 1.0
"""What follows a job is not counted as idle."""
OPEN: Final = (JobState.QUEUED, JobState.RUNNING)
pymupdf: Any = mupdf.load()

Samples = dict[str, list[float]]


def write_book(file: Path, pages: int) -> None:
    """Pages of text with a drawing each."""
    document, writer = pymupdf.open(), corpus.PassageWriter(31)
    for _ in range(pages):
        page = document.new_page()
        page.insert_textbox(pymupdf.Rect(50, 50, 550, 500), writer.text(WORDS))
        page.draw_rect(pymupdf.Rect(100, 520, 500, 760), fill=(0.2, 0.4, 0.7))
    document.save(file)


async def run(pages: int, rounds: int, delay: float, seconds: float) -> None:
    async with LanguageModelServer(answer=described, delay=delay) as model:
        with work_folder(None, "pages") as folder:
            file = folder / "providers.yaml"
            file.write_text(
                f"providers:\n- {{name: stand-in, kind: openai, base_url: '{model.base_url}/v1', reads: [images, pdf]}}\n",
                encoding="utf-8",
            )
            installation = BenchmarkInstallation(folder, {"LLC_PROVIDERS": str(file)})
            await installation.start()
            try:
                await _measured(installation, model, pages, rounds, seconds)
            finally:
                await installation.stop()


async def _measured(
    installation: BenchmarkInstallation,
    model: LanguageModelServer,
    pages: int,
    rounds: int,
    seconds: float,
) -> None:
    await prepare(installation, CHUNKS)
    async with installation.client() as client:
        await _add_book(client, installation.folder, pages)
        await until_warm(installation, f"synthetic-{CHUNKS}")
        fresh = iter(corpus.queries(texts_of(CHUNKS), 60_000, seed=CHUNKS))
        asker = Asker(installation.url, installation.token)
        pairs: list[tuple[Samples, Samples]] = []
        for _ in range(WARM_UP):
            for mode in MODES:
                await asyncio.to_thread(asker.sample, CHUNKS, mode, next(fresh))
        doc_id = document_id(BOOK, f"file:///{BOOK}.pdf")
        part = -(-pages // rounds)
        for first in range(1, pages + 1, part):
            idle: Samples = {mode: [] for mode in MODES}
            busy: Samples = {mode: [] for mode in MODES}
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                await _search(asker, fresh, idle)
            numbers = list(range(first, min(first + part, pages + 1)))
            answer = await client.extract(BOOK, [doc_id], pages=numbers)
            (job_id,) = [one.job_id for one in answer.documents if one.job_id is not None]
            while (await client.job(job_id)).state in OPEN:
                for _ in range(10):
                    await _search(asker, fresh, busy)
            await ended(client, [job_id])
            await asyncio.sleep(AFTER_SECONDS)
            pairs.append((idle, busy))
        asker.close()
        totals = await client.understanding_totals(BOOK)
        if totals.extraction.processed != pages or len(model.seen) != pages:
            raise RuntimeError(
                f"{totals.extraction.processed} of {pages} pages, {len(model.seen)} calls"
            )
    for mode in MODES:
        print(_line(mode, pairs), flush=True)


def _line(mode: str, pairs: Sequence[tuple[Samples, Samples]]) -> str:
    calm = Spread.of([one for idle, _ in pairs for one in idle[mode]])
    loaded = Spread.of([one for _, busy in pairs for one in busy[mode]])
    neighbours = [(Spread.of(idle[mode]), Spread.of(busy[mode])) for idle, busy in pairs]
    p50 = median(busy.p50_ms / idle.p50_ms for idle, busy in neighbours)
    p95 = median(busy.p95_ms / idle.p95_ms for idle, busy in neighbours)
    count = sum(len(busy[mode]) for _, busy in pairs)
    return (
        f"{mode}: {calm.p50_ms}/{calm.p95_ms} ms at idle, {loaded.p50_ms}/{loaded.p95_ms} ms during extraction "
        f"({count} searches), ratio {p50:.2f}/{p95:.2f} (p50/p95)"
    )


async def _add_book(client: AsyncClient, folder: Path, pages: int) -> None:
    """Added before extraction is switched on, so that parts of it can be requested one by one."""
    await create(client, BOOK)
    file = folder / f"{BOOK}.pdf"
    await asyncio.to_thread(write_book, file, pages)
    await ended(client, [await add(client, BOOK, file)])
    await quiet(client, BOOK)
    now = await client.describe(BOOK)
    extraction = {"enabled": True, "provider": f"stand-in/{MODEL}"}
    changed = parse_manifest({**now.manifest, "extraction": extraction})
    await client.update(changed, if_match=now.etag)


async def _search(asker: Asker, fresh: Iterator[str], samples: Samples) -> None:
    for mode in MODES:
        sample = await asyncio.to_thread(asker.sample, CHUNKS, mode, next(fresh))
        samples[mode].append(sample.total)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--delay", type=float, default=5.0, help="seconds per answer")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each idle part")
    given = parser.parse_args()
    asyncio.run(run(given.pages, given.rounds, given.delay, given.seconds))


if __name__ == "__main__":
    main()
